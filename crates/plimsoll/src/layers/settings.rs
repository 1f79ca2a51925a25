//! What is written alike in every layer.

/// Builder methods. `field: Type;` takes a value of the field, `method => field = value;` sets a given one.
macro_rules! settings {
    () => {
        /// With this name. Its weights' names begin with it; layers of one name share their weights.
        #[must_use]
        pub fn named(self, name: &str) -> Self {
            Self { name: Some(name.into()), ..self }
        }
    };
    ($(#[$meta:meta])* $method:ident => $field:ident = $value:expr; $($rest:tt)*) => {
        $(#[$meta])*
        #[must_use]
        pub fn $method(self) -> Self {
            Self { $field: $value, ..self }
        }
        settings!($($rest)*);
    };
    ($(#[$meta:meta])* $field:ident: $ty:ty; $($rest:tt)*) => {
        $(#[$meta])*
        #[must_use]
        pub fn $field(self, $field: $ty) -> Self {
            Self { $field: $field.into(), ..self }
        }
        settings!($($rest)*);
    };
}

/// The kind and the name of a layer with a field `name`.
macro_rules! identity {
    ($kind:expr) => {
        fn kind(&self) -> &'static str {
            $kind
        }

        fn name(&self) -> Option<&str> {
            self.name.as_deref()
        }
    };
}
