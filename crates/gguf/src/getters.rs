//! Metadata by key and type. All return `Ok(None)` where the key is absent.

use crate::{Array, Gguf, GgufError, Strings, Value};

impl Gguf {
    /// The name of the architecture, `general.architecture`.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], [`GgufError::WrongType`].
    pub fn architecture(&self) -> Result<&str, GgufError> {
        const KEY: &str = "general.architecture";
        self.str(KEY)?.ok_or_else(|| GgufError::MissingKey { key: KEY.to_string() })
    }

    /// An integer of any width.
    ///
    /// # Errors
    /// [`GgufError::WrongType`]; [`GgufError::IntegerRange`] where it is negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.metadata.u64(key)
    }

    /// An integer of any width that fits 32 bits.
    ///
    /// # Errors
    /// [`GgufError::WrongType`], [`GgufError::IntegerRange`].
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.integer(key, "u32")
    }

    /// An integer of any width that fits 64 bits with a sign.
    ///
    /// # Errors
    /// [`GgufError::WrongType`], [`GgufError::IntegerRange`].
    pub fn i64(&self, key: &str) -> Result<Option<i64>, GgufError> {
        self.integer(key, "i64")
    }

    /// A float; one of 64 bits is rounded.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        Ok(self.f64(key)?.map(|value| value as f32))
    }

    /// A float of either width.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn f64(&self, key: &str) -> Result<Option<f64>, GgufError> {
        self.typed(key, "a float", Value::as_float)
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "bool", |value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// A string.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "string", |value| match value {
            Value::String(value) => Some(value.as_str()),
            _ => None,
        })
    }

    /// An array of strings.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, GgufError> {
        self.array(key, "array of string", |array| match array {
            Array::Strings(strings) => Some(Strings::iter(strings).collect()),
            _ => None,
        })
    }

    /// An array of floats; those of 64 bits are rounded.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        self.array(key, "array of f32 or f64", |array| match array {
            Array::F32(items) => Some(items.clone()),
            Array::F64(items) => Some(items.iter().map(|&item| item as f32).collect()),
            _ => None,
        })
    }

    /// An array of booleans.
    ///
    /// # Errors
    /// [`GgufError::WrongType`].
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, GgufError> {
        self.array(key, "array of bool", |array| match array {
            Array::Bool(items) => Some(items.clone()),
            _ => None,
        })
    }

    /// An array of integers of any width that fit 64 bits with a sign.
    ///
    /// # Errors
    /// [`GgufError::WrongType`], [`GgufError::IntegerRange`].
    pub fn i64s(&self, key: &str) -> Result<Option<Vec<i64>>, GgufError> {
        self.integers(key, "i64")
    }

    /// An array of integers of any width, none of them negative.
    ///
    /// # Errors
    /// [`GgufError::WrongType`], [`GgufError::IntegerRange`].
    pub fn u64s(&self, key: &str) -> Result<Option<Vec<u64>>, GgufError> {
        self.integers(key, "u64")
    }

    fn integer<T: TryFrom<i128>>(&self, key: &str, expected: &'static str) -> Result<Option<T>, GgufError> {
        let found = self.typed(key, "an integer", Value::as_integer)?;
        found.map(|found| fit(key, expected, found)).transpose()
    }

    fn integers<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: &'static str,
    ) -> Result<Option<Vec<T>>, GgufError> {
        let found = self.array(key, "array of integers", Array::as_integers)?;
        found.map(|items| items.map(|found| fit(key, expected, found)).collect()).transpose()
    }

    fn array<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Array) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        self.typed(key, expected, |value| match value {
            Value::Array(array) => read(array),
            _ => None,
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(read) => Ok(Some(read)),
            None => Err(GgufError::WrongType { key: key.to_string(), expected, found: value.type_name() }),
        }
    }
}

fn fit<T: TryFrom<i128>>(key: &str, expected: &'static str, found: i128) -> Result<T, GgufError> {
    T::try_from(found).map_err(|_| GgufError::IntegerRange { key: key.to_string(), expected, found })
}
