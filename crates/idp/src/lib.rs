//! idp.
