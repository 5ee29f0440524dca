//! Fixtures shared by the cross-crate tests.
