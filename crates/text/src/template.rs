//! Chat templates: the Jinja of a model file writes a conversation as text, under a budget.
//!
//! What templates may expect is what the training side gives them: `messages`, `add_generation_prompt`, `bos_token`,
//! `eos_token`, `tools` and `documents` (none), `raise_exception(reason)`, `strftime_now(format)`, a `tojson` that
//! writes as Python does, Python's string and dictionary methods, loop controls, `generation` blocks, and blocks that
//! leave no white space.
//!
//! A template is part of an untrusted file. Its budget of fuel pays for instructions and, 64 bytes a unit, for all
//! data that it makes, so neither a loop nor a doubling string can take time or memory; its size and its stack are
//! chosen so that no nesting overflows.

use std::error::Error as _;
use std::ops::Range;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, State, Value, context};

use crate::conversation::Message;
use crate::error::TextError;

mod clock;
mod generation;
mod python_json;
mod sums;

use generation::Marks;

/// The largest template that is read, in bytes; published ones have up to thirty thousand.
const LIMIT_BYTES: usize = 1 << 16;
/// Fuel of a conversation without content, then more for each message. Published templates take some hundred units a
/// message.
const FUEL: u64 = 20_000;
const FUEL_A_MESSAGE: u64 = 1_000;
/// Bytes of content for one more unit of fuel. Content is copied some five times on its way, at 64 bytes a unit.
const BYTES_A_UNIT: u64 = 8;
/// The most fuel, whatever the conversation: it bounds the depth of the values that a template can nest.
const FUEL_LIMIT: u64 = 250_000;
/// Stack of the thread on which a template is compiled and rendered, in bytes, of which pages are used as they are
/// touched. The engine recurses once a nested expression and once a nested value, and frees both so: at the limits
/// above, 32 MiB and 64 MiB were measured to suffice.
const STACK_BYTES: usize = 256 << 20;

const NAME: &str = "chat_template";

/// Filters whose work is not charged: the square of a value's depth, and sums of lists beside those of [`sums`].
const UNPAID_FILTERS: [&str; 3] = ["pprint", "chain", "sum"];
/// Largest width or precision that `format` may ask for: what it pads is not charged before it is there.
const FORMAT_DIGITS: usize = 3;

/// A compiled chat template.
pub(crate) struct Template {
    environment: Environment<'static>,
    /// Whether it says by blocks what a reply's text is.
    marks_replies: bool,
    bos_token: String,
    eos_token: String,
}

/// Compiles `source` and calls `work` with it, on a thread whose stack is deep enough for any template. `bos_token`
/// and `eos_token` are what the template writes by these names.
///
/// # Errors
/// [`TextError::TemplateSize`], [`TextError::Template`], [`TextError::TemplateThread`], and those of `work`.
pub(crate) fn with_template<T: Send>(
    source: &str,
    bos_token: &str,
    eos_token: &str,
    work: impl FnOnce(&Template) -> Result<T, TextError> + Send,
) -> Result<T, TextError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat template".to_string()).stack_size(STACK_BYTES);
        let work = thread
            .spawn_scoped(scope, || work(&Template::new(source, bos_token, eos_token)?))
            .map_err(|source| TextError::TemplateThread { stack_bytes: STACK_BYTES, source })?;
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Template {
    fn new(source: &str, bos_token: &str, eos_token: &str) -> Result<Template, TextError> {
        if source.len() > LIMIT_BYTES {
            return Err(TextError::TemplateSize { limit_bytes: LIMIT_BYTES, found_bytes: source.len() });
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| refused(&error, 0))?);
        environment.set_unknown_method_callback(python_method);
        for filter in UNPAID_FILTERS {
            environment.remove_filter(filter);
        }
        environment.add_filter(sums::FILTER, sums::guard);
        environment.add_filter("tojson", python_json::to_json);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter(generation::FILTER, |content: Value| content);
        let filtered = generation::as_filter(source);
        let marks_replies = filtered.is_some();
        let source = sums::guarded(filtered.as_deref().unwrap_or(source)).ok_or_else(|| {
            TextError::Template { line: 0, reason: "more sums than are looked after".to_string() }
        })?;
        environment.add_template_owned(NAME, source).map_err(|error| refused(&error, 0))?;
        let (bos_token, eos_token) = (bos_token.to_string(), eos_token.to_string());
        Ok(Template { environment, marks_replies, bos_token, eos_token })
    }

    /// Whether it has `generation` blocks.
    pub(crate) fn marks_replies(&self) -> bool {
        self.marks_replies
    }

    /// The text of `messages`, with the beginning of a reply after them if `generation_prompt`. `unix_seconds` is the
    /// time that `strftime_now` tells, in UTC.
    ///
    /// # Errors
    /// [`TextError::Template`], [`TextError::TemplateFuel`], [`TextError::TemplateRefused`].
    pub(crate) fn render(
        &self,
        messages: &[Message],
        generation_prompt: bool,
        unix_seconds: u64,
    ) -> Result<String, TextError> {
        self.render_in(self.environment.clone(), messages, generation_prompt, unix_seconds)
    }

    /// The same, of whole messages, and the bytes of it that its `generation` blocks wrote, ascending.
    ///
    /// # Errors
    /// As [`Template::render`]; [`TextError::GenerationBlock`] where the template reads what a block has written.
    pub(crate) fn render_marked(
        &self,
        messages: &[Message],
        unix_seconds: u64,
    ) -> Result<(String, Vec<Range<usize>>), TextError> {
        let plain = self.render(messages, false, unix_seconds)?;
        let marks = Marks::absent_from([plain.as_str()].into_iter()).ok_or(TextError::GenerationBlock)?;
        let mut environment = self.environment.clone();
        environment.add_filter(generation::FILTER, move |content: &str| marks.around(content));
        let marked = self.render_in(environment, messages, false, unix_seconds)?;
        let (text, blocks) = marks.take(&marked);
        if text == plain { Ok((text, blocks)) } else { Err(TextError::GenerationBlock) }
    }

    fn render_in(
        &self,
        mut environment: Environment<'static>,
        messages: &[Message],
        generation_prompt: bool,
        unix_seconds: u64,
    ) -> Result<String, TextError> {
        let bytes: usize = messages.iter().map(|message| message.role.len() + message.content.len()).sum();
        let fuel = (messages.len() as u64)
            .saturating_mul(FUEL_A_MESSAGE)
            .saturating_add(bytes as u64 / BYTES_A_UNIT + FUEL)
            .min(FUEL_LIMIT);
        environment.set_fuel(Some(fuel));
        environment.add_function("strftime_now", move |format: &str| clock::format_utc(unix_seconds, format));
        let template = environment.get_template(NAME).map_err(|error| refused(&error, fuel))?;
        template
            .render(context! {
                messages => messages.iter().map(as_value).collect::<Vec<Value>>(),
                add_generation_prompt => generation_prompt,
                bos_token => self.bos_token.as_str(),
                eos_token => self.eos_token.as_str(),
                tools => (),
                documents => (),
            })
            .map_err(|error| refused(&error, fuel))
    }
}

fn as_value(message: &Message) -> Value {
    context! { role => message.role.as_str(), content => message.content.as_str() }
}

/// Methods of Python's strings and dictionaries.
fn python_method(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    if method == "format" && value.as_str().is_some_and(pads_much) {
        return Err(ErrorKind::OutOfFuel.into());
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

/// Whether a format has a number of more than [`FORMAT_DIGITS`] digits, or takes one from an argument.
fn pads_much(format: &str) -> bool {
    let long = format.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > FORMAT_DIGITS);
    let nested = format.split('{').any(|field| field.contains(':') && !field.contains('}'));
    long || nested
}

/// The words of a template that refuses its conversation.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(reason: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, reason.clone()).with_source(Raised(reason)))
}

fn refused(error: &Error, fuel: u64) -> TextError {
    if error.kind() == ErrorKind::OutOfFuel {
        return TextError::TemplateFuel { fuel };
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(Raised(reason)) = error.downcast_ref() {
            return TextError::TemplateRefused { reason: reason.clone() };
        }
        if error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::OutOfFuel) {
            return TextError::TemplateFuel { fuel };
        }
        cause = error.source();
    }
    let reason = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    TextError::Template { line: error.line().unwrap_or(0), reason }
}

#[cfg(test)]
mod tests;
