//! Reads the text of a graph, as [`crate::Graph`]'s `Display` writes it. Values must be numbered in order from `%0`; the
//! result has passed [`crate::verify()`]. A `;` outside a quoted name begins a comment up to the end of the line.

use apprentice_quant::Format;
use serde_json::Value as Json;

use crate::error::GraphError;
use crate::graph::{Binding, BindingKind, Effect, Graph, Node, Origin, Output, ValueData};
use crate::ids::{NodeId, ValueId};
use crate::ops::AnyOp;
use crate::print::keyword;
use crate::types::{Element, Extent, Shape, Type};
use crate::verify::verify;

/// Why text is no graph.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ParseError {
    /// A line that cannot be read.
    #[error("line {line}: expected {expected}, found {found:?}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What would have been read.
        expected: String,
        /// The rest of the line.
        found: String,
    },
    /// The graph that was read breaks rules.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Reads a graph.
pub fn parse(text: &str) -> Result<Graph, ParseError> {
    let mut graph = Graph::default();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let mut line = Line { rest: without_comment(line).trim(), number: index + 1 };
        match line.rest {
            "" => {}
            "graph {" if !open => open = true,
            "}" if open => {
                let violations = verify(&graph);
                if !violations.is_empty() {
                    return Err(GraphError::Invalid(violations).into());
                }
                return Ok(graph);
            }
            _ if !open => return Err(line.error("graph {")),
            _ => line.statement(&mut graph)?,
        }
    }
    Err(Line { rest: "", number: text.lines().count() + 1 }.error("}"))
}

/// The line up to a `;` that no quoted name holds.
fn without_comment(line: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ';' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

struct Line<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> Line<'a> {
    fn error(&self, expected: impl Into<String>) -> ParseError {
        ParseError::Line { line: self.number, expected: expected.into(), found: self.rest.to_owned() }
    }

    fn take(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest.trim_start();
        true
    }

    fn need(&mut self, token: &str) -> Result<(), ParseError> {
        if self.take(token) { Ok(()) } else { Err(self.error(token)) }
    }

    fn word(&mut self, accept: impl Fn(char) -> bool, expected: &str) -> Result<&'a str, ParseError> {
        let end = self.rest.find(|c| !accept(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.error(expected));
        }
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        Ok(word)
    }

    fn number(&mut self) -> Result<usize, ParseError> {
        let digits = self.word(|c| c.is_ascii_digit(), "a number")?;
        digits.parse().map_err(|_| self.error("a number that fits"))
    }

    fn value(&mut self) -> Result<ValueId, ParseError> {
        self.need("%")?;
        let number = self.number()?;
        u32::try_from(number).map_err(|_| self.error("a value id below 2^32"))?;
        Ok(ValueId::new(number))
    }

    /// One JSON value at the start of the rest.
    fn json(&mut self, expected: &str) -> Result<Json, ParseError> {
        let mut stream = serde_json::Deserializer::from_str(self.rest).into_iter::<Json>();
        match stream.next() {
            Some(Ok(json)) => {
                self.rest = self.rest[stream.byte_offset()..].trim_start();
                Ok(json)
            }
            _ => Err(self.error(expected)),
        }
    }

    fn string(&mut self) -> Result<String, ParseError> {
        match self.json("a quoted name")? {
            Json::String(text) => Ok(text),
            _ => Err(self.error("a quoted name")),
        }
    }

    fn ty(&mut self) -> Result<Type, ParseError> {
        let element = self.word(|c| c.is_ascii_alphanumeric() || c == ':' || c == '_', "an element")?;
        let element = match element {
            "f32" => Element::F32,
            "f64" => Element::F64,
            "i32" => Element::I32,
            "i8" => Element::I8,
            "f16" => Element::F16,
            "q8_0" => Element::Q8_0,
            other => {
                let format = other.strip_prefix("weight:").and_then(Format::from_name);
                Element::Weight(format.ok_or_else(|| self.error(format!("an element, not {other:?}")))?)
            }
        };
        self.need("[")?;
        let mut shape = Vec::new();
        while !self.take("]") {
            if !shape.is_empty() {
                self.need(",")?;
            }
            shape.push(self.number()?);
        }
        let mut ty = Type::new(element, Shape(shape));
        if self.take("@") {
            let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.', "an extent")?;
            let extent = Extent::all().find(|extent| extent.to_string() == name);
            ty.extent = Some(extent.ok_or_else(|| self.error(format!("an extent, not {name:?}")))?);
        }
        Ok(ty)
    }

    fn statement(&mut self, graph: &mut Graph) -> Result<(), ParseError> {
        if self.take("write ") {
            let value = self.value()?;
            self.need("->")?;
            let store = self.value()?;
            let cells = if self.take("[") {
                let cells = self.value()?;
                self.need("]")?;
                Some(cells)
            } else {
                None
            };
            graph.effects.push(Effect { value, store, cells });
        } else if self.take("return ") {
            let name = self.string()?;
            graph.outputs.push(Output { name, value: self.value()? });
        } else {
            self.definition(graph)?;
        }
        if self.rest.is_empty() { Ok(()) } else { Err(self.error("the end of the line")) }
    }

    fn definition(&mut self, graph: &mut Graph) -> Result<(), ParseError> {
        let mut ids = vec![self.value()?];
        while self.take(",") {
            ids.push(self.value()?);
        }
        for (offset, id) in ids.iter().enumerate() {
            if id.index() != graph.values.len() + offset {
                return Err(self.error(format!("value %{} next, not {id}", graph.values.len() + offset)));
            }
        }
        self.need("=")?;
        for kind in [BindingKind::Weight, BindingKind::Data, BindingKind::Store] {
            if self.take(&format!("{} ", keyword(kind))) {
                if ids.len() > 1 {
                    return Err(self.error("one value of a binding"));
                }
                let name = self.string()?;
                self.need(":")?;
                let (ty, value) = (self.ty()?, ids[0]);
                graph.values.push(ValueData { ty, origin: Origin::Binding(graph.bindings.len()) });
                graph.bindings.push(Binding { name, kind, value });
                return Ok(());
            }
        }
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_', "an op")?;
        self.need("(")?;
        let mut inputs = Vec::new();
        while !self.take(")") {
            if !inputs.is_empty() {
                self.need(",")?;
            }
            inputs.push(if self.take("_") { None } else { Some(self.value()?) });
        }
        let attributes = self.json("attributes")?;
        let op = AnyOp::from_attributes(name, attributes)
            .ok_or_else(|| self.error(format!("an op, not {name:?}")))?
            .map_err(|error| self.error(format!("attributes of {name}: {error}")))?;
        let site = self.string()?;
        self.need(":")?;
        let node = NodeId::new(graph.nodes.len());
        for output in 0..ids.len() {
            if output > 0 {
                self.need(",")?;
            }
            let ty = self.ty()?;
            graph.values.push(ValueData { ty, origin: Origin::Node { node, output } });
        }
        graph.nodes.push(Node { op, inputs, outputs: ids, site });
        Ok(())
    }
}
