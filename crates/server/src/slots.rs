//! Slots: what the last prompt and reply of so many conversations were, and which of them are being served.
//!
//! Keys and values are not here: the engine finds pages again by the tokens that they hold. A slot is what a lesson may
//! refer to without sending the conversation again.

use apprentice_text::Message;

use crate::reject::Reject;
use crate::wanted::Place;

/// What a slot remembers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Held {
    /// The tokens of the last prompt, and those of the reply to it.
    pub tokens: Vec<u32>,
    /// Where the reply begins.
    pub reply_start: usize,
    /// The conversation that the prompt was made from, if it was one.
    pub messages: Option<Vec<Message>>,
    /// The adapter that replied.
    pub adapter: Option<String>,
}

/// A slot.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Slot {
    /// What it remembers.
    pub held: Held,
    /// Name of the conversation.
    pub conversation: Option<String>,
    /// Whether a request is served in it.
    pub busy: bool,
    /// When it was taken last; 0: never.
    used: u64,
}

/// All slots.
#[derive(Debug)]
pub struct Slots {
    slots: Vec<Slot>,
    clock: u64,
}

impl Slots {
    /// So many empty slots.
    pub fn new(count: usize) -> Slots {
        Slots { slots: vec![Slot::default(); count], clock: 0 }
    }

    /// All of them.
    pub fn all(&self) -> &[Slot] {
        &self.slots
    }

    /// The slot of a place, or the one that was not taken for the longest time; `None` while it is busy.
    pub fn pick(&self, place: &Place) -> Option<usize> {
        let free = |(_, slot): &(usize, &Slot)| !slot.busy;
        match self.position(place) {
            Some(index) => Some(index).filter(|index| !self.slots[*index].busy),
            None => {
                let oldest = self.slots.iter().enumerate().filter(free).min_by_key(|(_, slot)| slot.used);
                oldest.map(|(index, _)| index)
            }
        }
    }

    /// Keeps others out of a slot; a conversation that is named is there from now on.
    pub fn take(&mut self, index: usize, place: &Place) {
        self.clock += 1;
        let slot = &mut self.slots[index];
        (slot.busy, slot.used) = (true, self.clock);
        slot.conversation.clone_from(&place.conversation);
    }

    /// Remembers, and lets the next request in.
    pub fn give_back(&mut self, index: usize, held: Held) {
        let slot = &mut self.slots[index];
        (slot.busy, slot.held) = (false, held);
    }

    /// What the slot of a place remembers.
    ///
    /// # Errors
    /// A conversation that no slot remembers; a slot that is empty, or busy.
    pub fn held(&self, place: &Place) -> Result<(usize, &Held), Reject> {
        let Some(index) = self.position(place) else {
            let name = place.conversation.as_deref().unwrap_or_default();
            let message = format!("conversation: no slot remembers {name:?}");
            return Err(Reject::missing("conversation_not_found", message).at("conversation"));
        };
        let slot = &self.slots[index];
        if slot.busy {
            let message = format!("slot {index}: a request is being served in it");
            return Err(Reject::conflict("slot_busy", message).at(place.param()));
        }
        if slot.held.tokens.is_empty() {
            let message = format!("slot {index}: holds nothing");
            return Err(Reject::conflict("prompt_mismatch", message).at(place.param()).position(0));
        }
        Ok((index, &slot.held))
    }

    /// Replaces what a slot remembers, if it still remembers `before` and is not busy.
    pub fn replace(&mut self, index: usize, before: &[u32], held: Held) {
        let slot = &mut self.slots[index];
        if !slot.busy && slot.held.tokens == before {
            slot.held = held;
        }
    }

    fn position(&self, place: &Place) -> Option<usize> {
        match (&place.slot, &place.conversation) {
            (Some(index), _) => Some(*index),
            (None, Some(name)) => self.slots.iter().position(|slot| slot.conversation.as_ref() == Some(name)),
            (None, None) => None,
        }
    }
}

impl Place {
    /// The field that says it.
    pub fn param(&self) -> &'static str {
        if self.slot.is_some() { "id_slot" } else { "conversation" }
    }
}

impl Held {
    /// Refuses a prompt that these tokens do not begin with.
    ///
    /// # Errors
    /// A conflict, with the first position that differs.
    pub fn check(&self, prompt: &[u32]) -> Result<(), Reject> {
        let differs = prompt.iter().enumerate().find(|(position, id)| self.tokens.get(*position) != Some(id));
        match differs {
            None => Ok(()),
            Some((position, expected)) => {
                let found = match self.tokens.get(position) {
                    Some(found) => format!("token {found}"),
                    None => "nothing".to_owned(),
                };
                let message = format!(
                    "the slot holds another prompt: position {position}: expected token {expected}, found {found}"
                );
                Err(Reject::conflict("prompt_mismatch", message).position(position))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(index: usize) -> Place {
        Place { slot: Some(index), conversation: None }
    }
    fn named(name: &str) -> Place {
        Place { slot: None, conversation: Some(name.to_owned()) }
    }
    fn take(slots: &mut Slots, place: &Place) -> Option<usize> {
        let index = slots.pick(place)?;
        slots.take(index, place);
        Some(index)
    }
    fn held(tokens: &[u32]) -> Held {
        Held { tokens: tokens.to_vec(), ..Held::default() }
    }

    #[test]
    fn a_request_gets_its_own_slot_or_the_oldest() {
        let mut slots = Slots::new(3);
        let anywhere = Place::default();
        assert_eq!(take(&mut slots, &anywhere), Some(0));
        assert_eq!(take(&mut slots, &slot(2)), Some(2));
        assert_eq!(take(&mut slots, &slot(2)), None);
        assert_eq!(take(&mut slots, &named("a")), Some(1));
        assert_eq!(take(&mut slots, &named("a")), None);
        assert_eq!(take(&mut slots, &anywhere), None);
        for index in [0, 2, 1] {
            slots.give_back(index, held(&[1]));
        }
        assert_eq!(take(&mut slots, &anywhere), Some(0)); // taken before 2 and 1
        assert_eq!(take(&mut slots, &named("a")), Some(1));
        slots.give_back(1, held(&[1]));
        assert_eq!(take(&mut slots, &slot(1)), Some(1)); // now another conversation
        slots.give_back(1, held(&[1]));
        assert_eq!(slots.held(&named("a")).unwrap_err().code, "conversation_not_found");
    }

    #[test]
    fn an_empty_or_busy_slot_holds_nothing() {
        let mut slots = Slots::new(1);
        let empty = slots.held(&slot(0)).unwrap_err();
        assert_eq!((empty.status.as_u16(), empty.position), (409, Some(0)));
        take(&mut slots, &slot(0));
        assert_eq!(slots.held(&slot(0)).unwrap_err().code, "slot_busy");
        slots.give_back(0, held(&[5, 6]));
        assert_eq!(slots.held(&slot(0)).unwrap().1.tokens, [5, 6]);
    }

    #[test]
    fn the_first_difference_is_told() {
        let check = |prompt: &[u32], expected: Option<usize>| {
            let found = held(&[1, 2, 3]).check(prompt);
            assert_eq!(found.err().and_then(|reject| reject.position), expected, "{prompt:?}");
        };
        check(&[1, 2], None);
        check(&[1, 2, 3], None);
        check(&[1, 9, 3], Some(1));
        check(&[1, 2, 3, 4], Some(3));
        check(&[2], Some(0));
    }

    #[test]
    fn a_slot_that_has_moved_on_keeps_what_it_has() {
        let mut slots = Slots::new(1);
        take(&mut slots, &slot(0));
        slots.give_back(0, held(&[1, 2]));
        slots.replace(0, &[1], held(&[7]));
        assert_eq!(slots.held(&slot(0)).unwrap().1.tokens, [1, 2]);
        slots.replace(0, &[1, 2], held(&[7]));
        assert_eq!(slots.held(&slot(0)).unwrap().1.tokens, [7]);
    }
}
