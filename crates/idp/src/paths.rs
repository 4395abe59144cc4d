//! Paths of the endpoints and pages, each below the issuer.

/// Path of the authorization endpoint below the issuer.
pub const AUTHORIZE: &str = "/authorize";
/// Path of the token endpoint below the issuer.
pub const TOKEN: &str = "/token";
/// Path of the key set below the issuer.
pub const JWKS: &str = "/jwks";
/// Path of the userinfo endpoint below the issuer.
pub const USERINFO: &str = "/userinfo";
/// Path of the introspection endpoint below the issuer.
pub const INTROSPECT: &str = "/introspect";
/// Path of the revocation endpoint below the issuer.
pub const REVOKE: &str = "/revoke";
/// Path of the end session endpoint below the issuer.
pub const END_SESSION: &str = "/logout";
/// Path of the endpoint for pushed authorization requests below the issuer.
pub const PUSHED_REQUEST: &str = "/par";
/// Path of the device authorization endpoint below the issuer.
pub const DEVICE_AUTHORIZATION: &str = "/device_authorization";
/// Path of the page on which users enter a user code.
pub const DEVICE: &str = "/device";
/// Path that the device confirmation form is posted to.
pub const DEVICE_DECISION: &str = "/device/decision";
/// Path that the login form is posted to.
pub const LOGIN: &str = "/login";
/// Path that the form with a new password is posted to, which a login requires.
pub const NEW_PASSWORD: &str = "/login/password";
/// Path that the consent form is posted to.
pub const CONSENT: &str = "/consent";
/// Path that the logout confirmation form is posted to.
pub const LOGOUT_DECISION: &str = "/logout/decision";
/// Path of the page behind a link that an operator hands over.
pub const ACCOUNT_LINK: &str = "/set-password";
/// Path of the page for users who forgot their password.
pub const FORGOT_PASSWORD: &str = "/forgot-password";
/// Path of the account page; its forms are posted to paths below it.
pub const ACCOUNT: &str = "/account";
/// Path at which a receiver polls for security events.
pub const EVENTS: &str = "/ssf/poll/{receiver}";
