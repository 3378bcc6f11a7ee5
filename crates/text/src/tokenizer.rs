//! A vocabulary made ready: text to ids, and an id to its bytes.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::byte_level;
use crate::byte_pairs::BytePairs;
use crate::error::TextError;
use crate::names;
use crate::sentence_piece::{SPACE_MARK, SentencePiece};
use crate::special::{Part, Special, Specials};
use crate::split::PreTokenizer;
use crate::vocabulary::{TokenKind, Vocabulary};

/// How a text is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Whether text such as `<|im_start|>` is read as the control token of that text. User-defined tokens always are.
    pub special: bool,
    /// Whether the text is a whole prompt, which begins (and ends) with the marks that the vocabulary asks for: often
    /// its begin of sequence, often nothing.
    pub bos: bool,
}

/// Tables of one vocabulary.
pub(crate) struct Tokenizer {
    tokens: Vec<String>,
    kinds: Vec<TokenKind>,
    model: Model,
    specials: Specials,
    bos: Option<u32>,
    eos: Option<u32>,
    /// What a whole prompt begins and ends with.
    marks: (Option<u32>, Option<u32>),
    /// Ids that end a generation, ascending.
    ends: Vec<u32>,
}

enum Model {
    BytePairs(BytePairs),
    SentencePiece { piece: Box<SentencePiece>, space_prefix: bool },
}

impl Tokenizer {
    /// Checks a vocabulary and builds its tables. Its chat template is not looked at.
    ///
    /// A special id outside the vocabulary counts as absent; of two tokens with the same text the later one is what
    /// that text becomes.
    ///
    /// # Errors
    /// [`TextError`]: no tokeniser, one that is not built, or lists that do not fit each other.
    pub(crate) fn new(vocabulary: Vocabulary) -> Result<Tokenizer, TextError> {
        let Vocabulary { model: name, pre, mut tokens, mut kinds, scores, merges, .. } = vocabulary;
        let model = match name.as_str() {
            "gpt2" => "gpt2",
            "llama" => "llama",
            "none" => return Err(TextError::NoTokenizer { found: Some(name) }),
            _ => return Err(TextError::Model { found: name }),
        };
        let limit = u32::MAX as usize;
        if tokens.len() > limit {
            return Err(TextError::TooMany { key: "tokenizer.ggml.tokens", limit, found: tokens.len() });
        }
        if tokens.is_empty() {
            return Err(TextError::Missing { key: "tokenizer.ggml.tokens", model });
        }
        one_a_token("tokenizer.ggml.token_type", kinds.len(), tokens.len())?;
        one_a_token("tokenizer.ggml.scores", scores.len(), tokens.len())?;
        kinds.resize(tokens.len(), TokenKind::Normal);
        for (index, token) in tokens.iter_mut().enumerate().filter(|(_, token)| token.is_empty()) {
            *token = format!("[EMPTY_{index}]");
        }

        let known = |id: Option<u32>| id.filter(|id| (*id as usize) < tokens.len());
        let sentence_piece = model == "llama";
        // SentencePiece has fixed places for its marks where a file names none.
        let or_place = |id, place| known(id).or_else(|| known(sentence_piece.then_some(place)));
        let bos = or_place(vocabulary.bos, 1);
        let eos = or_place(vocabulary.eos, 2);
        let first = vocabulary.add_bos.unwrap_or(sentence_piece).then(|| {
            bos.ok_or(TextError::NoSuchMark {
                key: "tokenizer.ggml.add_bos_token",
                id_key: "tokenizer.ggml.bos_token_id",
            })
        });
        let last = vocabulary.add_eos.unwrap_or(false).then(|| {
            eos.ok_or(TextError::NoSuchMark {
                key: "tokenizer.ggml.add_eos_token",
                id_key: "tokenizer.ggml.eos_token_id",
            })
        });
        let marks = (first.transpose()?, last.transpose()?);

        let named = [eos, known(vocabulary.eot), known(vocabulary.eom)].into_iter().flatten();
        let by_text = (0u32..).zip(tokens.iter().zip(&kinds));
        let by_text =
            by_text.filter(|(_, (text, kind))| **kind == TokenKind::Control && names::ends_generation(text));
        let mut ends: Vec<u32> = named.chain(by_text.map(|(id, _)| id)).collect();
        ends.sort_unstable();
        ends.dedup();

        let specials = (0u32..).zip(tokens.iter().zip(&kinds)).filter_map(|(id, (text, kind))| {
            let control = names::matched_as(text, *kind)? == TokenKind::Control;
            Some(Special { id, text: text.as_str().into(), control })
        });
        let specials = Specials::new(specials.collect())?;

        let model = if sentence_piece {
            let scores = scores.into_iter().chain(std::iter::repeat(0.0));
            let entries = (0u32..).zip(&tokens).zip(scores);
            let entries = entries.map(|((id, text), score)| (text.as_str().into(), id, score));
            let piece = Box::new(SentencePiece::new(entries, or_place(vocabulary.unknown, 0)));
            Model::SentencePiece { piece, space_prefix: vocabulary.add_space_prefix.unwrap_or(true) }
        } else {
            let pre = pre
                .as_deref()
                .and_then(PreTokenizer::from_name)
                .ok_or(TextError::PreTokenizer { found: pre })?;
            if merges.is_empty() {
                return Err(TextError::Missing { key: "tokenizer.ggml.merges", model });
            }
            let ids: HashMap<&str, u32> = tokens.iter().map(String::as_str).zip(0u32..).collect();
            Model::BytePairs(BytePairs::new(pre, &merges, |text| ids.get(text).copied())?)
        };
        Ok(Tokenizer { tokens, kinds, model, specials, bos, eos, marks, ends })
    }

    /// The ids of `text`.
    pub(crate) fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        ids.extend(self.marks.0.filter(|_| options.bos));
        let mut after_token = true; // the start of the text counts as after a token
        for part in self.specials.split(text, options.special) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Raw(ref range) => match &self.model {
                    Model::BytePairs(pairs) => pairs.encode(&text[range.clone()], &mut ids),
                    Model::SentencePiece { piece, space_prefix } => {
                        piece.encode(&text[range.clone()], *space_prefix && after_token, &mut ids);
                    }
                },
            }
            after_token = matches!(part, Part::Token(_));
        }
        ids.extend(self.marks.1.filter(|_| options.bos));
        ids
    }

    /// The bytes that a token writes, `None` outside the vocabulary. Control tokens write nothing without `special`.
    pub(crate) fn bytes(&self, id: u32, special: bool) -> Option<Cow<'_, [u8]>> {
        let text = self.tokens.get(id as usize)?.as_str();
        Some(match self.kinds[id as usize] {
            TokenKind::Control | TokenKind::Unknown if !special => Cow::Borrowed(&[]),
            TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined => {
                Cow::Borrowed(text.as_bytes())
            }
            TokenKind::Undefined | TokenKind::Unused => Cow::Borrowed(&[]),
            TokenKind::Byte => byte_of(text).map_or(Cow::Borrowed(&[][..]), |byte| Cow::Owned(vec![byte])),
            TokenKind::Normal => match self.model {
                Model::BytePairs(_) => {
                    Cow::Owned(text.chars().fold(Vec::with_capacity(text.len()), write_character))
                }
                Model::SentencePiece { .. } if text.contains(SPACE_MARK) => {
                    Cow::Owned(text.replace(SPACE_MARK, " ").into_bytes())
                }
                Model::SentencePiece { .. } => Cow::Borrowed(text.as_bytes()),
            },
        })
    }

    /// Whether a text begins with a space that was put there by [`Tokenizer::encode`].
    pub(crate) fn adds_space(&self) -> bool {
        matches!(self.model, Model::SentencePiece { space_prefix: true, .. })
    }

    /// Tokens of the vocabulary.
    pub(crate) fn vocab(&self) -> usize {
        self.tokens.len()
    }

    /// The text of a token as the vocabulary spells it.
    pub(crate) fn spelling(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize).map(String::as_str)
    }

    /// Begin of sequence.
    pub(crate) fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// End of sequence.
    pub(crate) fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The token that a whole prompt begins with.
    pub(crate) fn first_mark(&self) -> Option<u32> {
        self.marks.0
    }

    /// Ids that end a generation, ascending.
    pub(crate) fn ends(&self) -> &[u32] {
        &self.ends
    }
}

/// A list is absent or has one entry a token.
fn one_a_token(key: &'static str, found: usize, expected: usize) -> Result<(), TextError> {
    if found == 0 || found == expected { Ok(()) } else { Err(TextError::Length { key, expected, found }) }
}

/// The byte of `<0x41>`.
fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// A character of the byte alphabet writes its byte, any other itself.
fn write_character(mut bytes: Vec<u8>, character: char) -> Vec<u8> {
    match byte_level::byte(character) {
        Some(byte) => bytes.push(byte),
        None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
    bytes
}
