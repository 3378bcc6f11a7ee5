//! What a line says: a message, or an order that begins with a slash.

use crate::exit::Failure;

/// A line, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Say this to the model.
    Say(String),
    /// The last reply becomes this.
    Teach(String),
    /// Take the last lesson back.
    Undo,
    /// Write the adapter to this file or folder.
    Save(String),
    /// Show the adapters, or switch: to the one of this name, `on`, or `off`.
    Adapters(Option<String>),
    /// Tell the model this before everything else; nothing, if empty.
    System(String),
    /// Begin a new conversation.
    Clear,
    /// Show the orders.
    Help,
    /// Leave.
    Quit,
}

/// How an order is written, and what it does.
struct Row {
    name: &'static str,
    /// What follows the name; a name in brackets may be left out, an empty one takes nothing.
    argument: &'static str,
    does: &'static str,
    read: fn(String) -> Order,
}

const ROWS: &[Row] = &[
    Row {
        name: "/teach",
        argument: "TEXT",
        does: "the last reply becomes TEXT, and the adapter learns it",
        read: Order::Teach,
    },
    Row { name: "/undo", argument: "", does: "take the last lesson back", read: |_| Order::Undo },
    Row {
        name: "/save",
        argument: "FILE",
        does: "write the adapter: GGUF where FILE ends in .gguf, otherwise a PEFT folder",
        read: Order::Save,
    },
    Row {
        name: "/adapters",
        argument: "[NAME]",
        does: "show adapters; switch to NAME, or on, or off",
        read: |name| Order::Adapters(Some(name).filter(|name| !name.is_empty())),
    },
    Row {
        name: "/system",
        argument: "[TEXT]",
        does: "what the model is told before everything else; nothing without TEXT",
        read: Order::System,
    },
    Row {
        name: "/clear",
        argument: "",
        does: "begin a new conversation; adapters and system text stay",
        read: |_| Order::Clear,
    },
    Row { name: "/help", argument: "", does: "show this", read: |_| Order::Help },
    Row { name: "/quit", argument: "", does: "leave, as Ctrl-D does", read: |_| Order::Quit },
];

impl Order {
    /// Reads a line, which may be several; `None` for a blank one.
    ///
    /// # Errors
    /// An order that is not known, lacks its argument, or has one too many.
    pub fn read(line: &str) -> Result<Option<Order>, Failure> {
        let line = line.trim();
        if line.is_empty() {
            return Ok(None);
        }
        if !line.starts_with('/') {
            return Ok(Some(Order::Say(line.to_owned())));
        }
        if let Some(rest) = line.strip_prefix("//") {
            return Ok(Some(Order::Say(format!("/{rest}"))));
        }
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        let row = ROWS.iter().find(|row| row.name == name).ok_or_else(|| {
            let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
            Failure::input(format!("{name} is not known; {} are", known.join(", ")))
        })?;
        match (row.argument, argument) {
            ("", "") => {}
            ("", found) => return Err(Failure::input(format!("{name} takes nothing more, found {found:?}"))),
            (expected, "") if !expected.starts_with('[') => {
                return Err(Failure::input(format!("{name}: expected {expected}")));
            }
            _ => {}
        }
        Ok(Some((row.read)(argument.to_owned())))
    }
}

/// The orders, a line each.
pub fn help() -> String {
    let mut text = String::new();
    for Row { name, argument, does, .. } in ROWS {
        text += &format!("{:<18} {does}\n", format!("{name} {argument}"));
    }
    text + "Ctrl-C stops a reply or a lesson. A line that ends in \\ goes on. A message that begins with a slash: //.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let check = |line: &str, expected: Option<Order>| {
            assert_eq!(Order::read(line).unwrap(), expected, "{line:?}")
        };
        check(" \n", None);
        check(" hello\nthere ", Some(Order::Say("hello\nthere".into())));
        check("/teach  It is\n42. ", Some(Order::Teach("It is\n42.".into())));
        check("/teach\nIt is", Some(Order::Teach("It is".into())));
        check("/save a b.gguf", Some(Order::Save("a b.gguf".into())));
        check("/adapters", Some(Order::Adapters(None)));
        check("/adapters off", Some(Order::Adapters(Some("off".into()))));
        check("/system", Some(Order::System(String::new())));
        check("//etc/passwd?", Some(Order::Say("/etc/passwd?".into())));
        check("/undo", Some(Order::Undo));
        check("/quit", Some(Order::Quit));
    }

    #[test]
    fn lines_that_cannot_be() {
        let check = |line: &str, expected: &str| match Order::read(line) {
            Err(Failure::Refused { message, .. }) => assert_eq!(message, expected, "{line:?}"),
            other => panic!("{line:?}: {other:?}"),
        };
        check("/teach", "/teach: expected TEXT");
        check("/save  ", "/save: expected FILE");
        check("/undo 2", "/undo takes nothing more, found \"2\"");
        let known = "/teach, /undo, /save, /adapters, /system, /clear, /help, /quit";
        check("/tech x", &format!("/tech is not known; {known} are"));
        check("/", &format!("/ is not known; {known} are"));
        check("/TEACH x", &format!("/TEACH is not known; {known} are"));
    }

    #[test]
    fn help_names_every_order() {
        for row in ROWS {
            assert!(help().contains(row.name) && help().contains(row.does), "{}", row.name);
        }
    }
}
