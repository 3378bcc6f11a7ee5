//! The door of this crate: a model's text, with one function a task.

use std::borrow::Cow;
use std::sync::Arc;

use crate::conversation::{Conversation, EncodedConversation, EncodedReply};
use crate::decode::Decoder;
use crate::error::TextError;
use crate::replies::Replies;
use crate::template::{Template, with_template};
use crate::tokenizer::{EncodeOptions, Tokenizer};
use crate::vocabulary::Vocabulary;

/// The tokeniser and chat template of one model. Cloning is cheap; clones share their tables.
#[derive(Clone)]
pub struct Text {
    tokenizer: Arc<Tokenizer>,
    /// The template's source. It is compiled when it is used, so a file whose template is not understood still
    /// completes text.
    template: Option<Arc<str>>,
}

impl Text {
    /// Checks a vocabulary and builds its tables.
    ///
    /// A special id outside the vocabulary counts as absent; of two tokens with the same text the later one is what
    /// that text becomes.
    ///
    /// # Errors
    /// [`TextError`]: no tokeniser, one that is not built, or lists that do not fit each other.
    pub fn new(mut vocabulary: Vocabulary) -> Result<Text, TextError> {
        let template = vocabulary.chat_template.take().map(Arc::from);
        Ok(Text { tokenizer: Arc::new(Tokenizer::new(vocabulary)?), template })
    }

    /// The ids of `text`. Any text has ids; a byte that the vocabulary cannot spell is dropped.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        self.tokenizer.encode(text, options)
    }

    /// The text of `ids`, with U+FFFD for bytes that make no character. Control tokens are written only with
    /// `special`.
    ///
    /// # Errors
    /// [`TextError::TokenId`] for an id outside the vocabulary.
    pub fn decode(&self, ids: &[u32], special: bool) -> Result<String, TextError> {
        let mut decoder = Decoder::new(self.tokenizer.clone(), special, true);
        let mut text = String::with_capacity(ids.len() * 4);
        for id in ids {
            text += &decoder.push(*id)?;
        }
        Ok(text + &decoder.finish())
    }

    /// A decoder for ids that continue a text, such as a reply as it is generated.
    pub fn decoder(&self, special: bool) -> Decoder {
        Decoder::new(self.tokenizer.clone(), special, false)
    }

    /// Whether the file has a chat template. Whether that is understood shows when it is used.
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// The conversation as the chat template writes it, with the beginning of a reply if `generation_prompt`.
    ///
    /// # Errors
    /// [`TextError::NoTemplate`], and whatever the template does wrong or refuses.
    pub fn render(&self, conversation: &Conversation, generation_prompt: bool) -> Result<String, TextError> {
        let time = conversation.time();
        self.with_template(|template| template.render(&conversation.messages, generation_prompt, time))
    }

    /// The ids of a prompt: the conversation and the beginning of a reply to it.
    ///
    /// # Errors
    /// As [`Text::render`].
    pub fn prompt(&self, conversation: &Conversation) -> Result<Vec<u32>, TextError> {
        Ok(self.encode_rendered(&self.render(conversation, true)?))
    }

    /// The ids of a whole conversation and the runs of its replies.
    ///
    /// A run is what a `generation` block of the template wrote, without what stands in the prompt already; where the
    /// template has no such block, all that follows the prompt. It ends with the last token that ends a generation.
    ///
    /// # Errors
    /// As [`Text::render`]; [`TextError::Unsound`] where a template (or a merge across the border) changes earlier
    /// tokens in the light of later ones; [`TextError::EmptyReply`]; [`TextError::GenerationBlock`].
    pub fn conversation(&self, conversation: &Conversation) -> Result<EncodedConversation, TextError> {
        self.with_replies(conversation, |replies| replies.all(&conversation.messages))
    }

    /// The ids of a prompt, and those of a reply to it that is to be learnt: `reply` as the template writes it, and the
    /// token that ends it. What a template writes after that token is left out.
    ///
    /// # Errors
    /// As [`Text::render`]; [`TextError::Unsound`] where the conversation with the reply does not begin with the
    /// prompt; [`TextError::EmptyReply`].
    pub fn reply(&self, conversation: &Conversation, reply: &str) -> Result<EncodedReply, TextError> {
        self.with_replies(conversation, |replies| replies.one(&conversation.messages, reply))
    }

    /// Whether `id` ends a generation: one of the file's ends, or a control token that is known to be one.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.tokenizer.ends().binary_search(&id).is_ok()
    }

    /// The ids that end a generation, ascending.
    pub fn end_ids(&self) -> &[u32] {
        self.tokenizer.ends()
    }

    /// Tokens of the vocabulary; ids are below it.
    pub fn vocab(&self) -> usize {
        self.tokenizer.vocab()
    }

    /// The begin of sequence.
    pub fn bos(&self) -> Option<u32> {
        self.tokenizer.bos()
    }

    /// The end of sequence.
    pub fn eos(&self) -> Option<u32> {
        self.tokenizer.eos()
    }

    /// A token as the vocabulary spells it: `Ġthe`, `▁the`, `<0x0A>`. `None` outside the vocabulary.
    pub fn spelling(&self, id: u32) -> Option<&str> {
        self.tokenizer.spelling(id)
    }

    /// The bytes that a token stands for, those of a control token as it is spelt; they need not be whole characters. `None`
    /// outside the vocabulary.
    pub fn bytes(&self, id: u32) -> Option<Cow<'_, [u8]>> {
        self.tokenizer.bytes(id, true)
    }

    fn with_template<T: Send>(
        &self,
        work: impl FnOnce(&Template) -> Result<T, TextError> + Send,
    ) -> Result<T, TextError> {
        let source = self.template.as_deref().ok_or(TextError::NoTemplate)?;
        let spelling = |id: Option<u32>| id.and_then(|id| self.spelling(id)).unwrap_or("");
        with_template(source, spelling(self.bos()), spelling(self.eos()), work)
    }

    fn with_replies<T: Send>(
        &self,
        conversation: &Conversation,
        work: impl FnOnce(Replies<'_, &(dyn Fn(&str) -> Vec<u32> + Sync)>) -> Result<T, TextError> + Send,
    ) -> Result<T, TextError> {
        let unix_seconds = conversation.time();
        let encode = |text: &str| self.encode_rendered(text);
        self.with_template(|template| {
            work(Replies { template, unix_seconds, encode: &encode, ends: self.end_ids() })
        })
    }

    /// Templates write special tokens as text, often the begin of sequence too; where they do not, it is added.
    fn encode_rendered(&self, text: &str) -> Vec<u32> {
        let mut ids = self.encode(text, EncodeOptions { special: true, bos: false });
        if let Some(first) = self.tokenizer.first_mark().filter(|first| ids.first() != Some(first)) {
            ids.insert(0, first);
        }
        ids
    }
}
