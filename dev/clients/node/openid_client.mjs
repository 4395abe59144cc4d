// openid-client at the provider: a web application with a secret, one with a key that pushes its
// requests, and a device.

import { readFileSync } from "node:fs";

import * as client from "openid-client";

import { Person } from "./person.mjs";
import { check, equal, refused } from "./verdicts.mjs";

const { CLIENTS_ISSUER: ISSUER, CLIENTS_APP: APP, CLIENTS_SECRET: SECRET, CLIENTS_PASSWORD: PASSWORD } = process.env;
const CALLBACK = `${APP}/node/callback`;
const BYE = `${APP}/node/bye`;
const SCOPE = "openid profile email groups offline_access orders:read";

const edsger = new Person("edsger", PASSWORD);

/** Reads the metadata. Without `enableNonRepudiationChecks`, signatures of ID tokens are not verified. */
async function discover(id, metadata, authentication) {
  return client.discovery(new URL(ISSUER), id, metadata, authentication, {
    // the tests have no TLS
    execute: [client.allowInsecureRequests, client.enableNonRepudiationChecks],
  });
}

/** The key of the clients with `private_key_jwt`. */
async function robotKey() {
  const pem = readFileSync(process.env.CLIENTS_ROBOT_KEY, "utf8");
  const der = Buffer.from(pem.replace(/-----[^-]+-----|\s/g, ""), "base64");
  const algorithm = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("pkcs8", der, algorithm, false, ["sign"]);
  return { key, kid: process.env.CLIENTS_ROBOT_KEY_ID };
}

/** A login: the response with its tokens, and the address that the browser returned to. */
async function logIn(config, parameters, { pushed = false, person = edsger } = {}) {
  const [verifier, state, nonce] = [client.randomPKCECodeVerifier(), client.randomState(), client.randomNonce()];
  const asked = {
    redirect_uri: CALLBACK, scope: SCOPE, state, nonce,
    code_challenge: await client.calculatePKCECodeChallenge(verifier), code_challenge_method: "S256", ...parameters,
  };
  const build = pushed ? client.buildAuthorizationUrlWithPAR : client.buildAuthorizationUrl;
  const url = await build(config, asked);
  const back = await person.visit(url, CALLBACK);
  const checks = { pkceCodeVerifier: verifier, expectedState: state, expectedNonce: nonce, idTokenExpected: true };
  return { url, back, checks, tokens: await client.authorizationCodeGrant(config, back, checks) };
}

/** The response of an authorization request whose code nobody redeems. */
async function respond(config, parameters, { decision, person = edsger } = {}) {
  const challenge = { code_challenge: "A".repeat(43), code_challenge_method: "S256" };
  const url = client.buildAuthorizationUrl(config, { redirect_uri: CALLBACK, state: "s", ...challenge, ...parameters });
  return client.authorizationCodeGrant(config, await person.visit(url, CALLBACK, { decision }), { expectedState: "s" });
}

let web, keyed, session;

async function discovery() {
  web = await discover("node", SECRET, client.ClientSecretBasic(SECRET));
  const told = web.serverMetadata();
  equal("issuer", told.issuer, ISSUER);
  equal("PKCE", told.supportsPKCE(), true);
  keyed = await discover("node-key", undefined, client.PrivateKeyJwt(await robotKey()));
}

async function codeFlow() {
  session = await logIn(web);
  const claims = session.tokens.claims();
  equal("iss and aud", [claims.iss, claims.aud], [ISSUER, "node"]);
  equal("nonce", claims.nonce, session.checks.expectedNonce);
  equal("iss of the response", session.back.searchParams.get("iss"), ISSUER);
  equal("expiresIn", session.tokens.expiresIn() > 0, true);
}

async function refusals() {
  const another = client.authorizationCodeGrant(web, session.back, { ...session.checks, expectedState: "x" });
  await refused("another state", another, "OAUTH_INVALID_RESPONSE");
  await refused("the code again", client.authorizationCodeGrant(web, session.back, session.checks), "invalid_grant");
  // that ended the grant
  session = await logIn(web);
  const denied = respond(web, { scope: "openid", prompt: "consent" }, { decision: "deny" });
  await refused("a denied consent", denied, "access_denied");
}

async function userinfo() {
  const { sub } = session.tokens.claims();
  const told = await client.fetchUserInfo(web, session.tokens.access_token, sub);
  const { name, email, email_verified, groups } = told;
  equal("claims", { name, email, email_verified, groups }, {
    name: "Edsger Dijkstra", email: "edsger@works.example", email_verified: true, groups: ["friends of Edsger"],
  });
  const another = client.fetchUserInfo(web, session.tokens.access_token, "else");
  await refused("another subject", another, "OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED");
}

async function introspection() {
  const told = await client.tokenIntrospection(keyed, session.tokens.access_token);
  const { active, client_id, aud, sub } = told;
  const wanted = { active: true, client_id: "node", aud: "orders", sub: session.tokens.claims().sub };
  equal("introspection", { active, client_id, aud, sub }, wanted);
}

async function refresh() {
  const old = session.tokens;
  const fresh = await client.refreshTokenGrant(web, old.refresh_token);
  const changed = ["access_token", "refresh_token"].filter((name) => fresh[name] !== old[name]);
  equal("new", changed, ["access_token", "refresh_token"]);
  equal("sub", fresh.claims().sub, old.claims().sub);
  session.tokens = fresh;
}

async function revocation() {
  const { access_token, refresh_token } = session.tokens;
  await client.tokenRevocation(web, refresh_token, { token_type_hint: "refresh_token" });
  equal("the access token", (await client.tokenIntrospection(keyed, access_token)).active, false);
  await refused("refresh", client.refreshTokenGrant(web, refresh_token), "invalid_grant");
}

async function secretPost() {
  const post = await discover("node", SECRET, client.ClientSecretPost(SECRET));
  const { access_token, scope } = await client.clientCredentialsGrant(post, { scope: "orders:read" });
  equal("scope", scope, "orders:read");
  equal("token", (await client.tokenIntrospection(keyed, access_token)).client_id, "node");
  const wrong = await discover("node", "wrong", client.ClientSecretPost("wrong"));
  // A 401 has a challenge, and openid-client reports that one.
  const problem = await client.clientCredentialsGrant(wrong).catch((problem) => problem);
  const found = [problem.code, (await problem.response.json()).error];
  equal("a wrong secret", found, ["OAUTH_WWW_AUTHENTICATE_CHALLENGE", "invalid_client"]);
}

async function pushed() {
  const scope = "openid profile offline_access orders:read";
  const login = await logIn(keyed, { scope }, { pushed: true });
  equal("parameters of the address", [...login.url.searchParams.keys()].sort(), ["client_id", "request_uri"]);
  equal("aud", login.tokens.claims().aud, "node-key");
  const told = await client.fetchUserInfo(keyed, login.tokens.access_token, login.tokens.claims().sub);
  equal("name in the signed userinfo", told.name, "Edsger Dijkstra");
  const fresh = await client.refreshTokenGrant(keyed, login.tokens.refresh_token);
  equal("sub after a refresh", fresh.claims().sub, login.tokens.claims().sub);
  await refused("a request that was not pushed", respond(keyed, { scope }), "invalid_request");
}

async function device() {
  const config = await discover("node-device", undefined, client.None());
  const shown = await client.initiateDeviceAuthorization(config, { scope: "openid profile" });
  const polled = client.pollDeviceAuthorizationGrant(config, shown, undefined, { signal: AbortSignal.timeout(40_000) });
  const frances = new Person("frances", PASSWORD);
  const page = await frances.visit(shown.verification_uri, undefined, { user_code: shown.user_code });
  equal("a page at the end", typeof page, "string");
  const tokens = await polled;
  const told = await client.fetchUserInfo(config, tokens.access_token, tokens.claims().sub);
  equal("name", told.name, "Frances Allen");
}

async function logOut() {
  const person = new Person("edsger", PASSWORD);
  const { tokens } = await logIn(web, {}, { person });
  const parameters = { id_token_hint: tokens.id_token, post_logout_redirect_uri: BYE, state: "farewell" };
  const back = await person.visit(client.buildEndSessionUrl(web, parameters), BYE);
  equal("state", back.searchParams.get("state"), "farewell");
  const silent = respond(web, { scope: "openid", prompt: "none" }, { person });
  await refused("prompt=none afterwards", silent, "login_required");
}

/** The module of docs/guides/provider-clients.md. */
async function documented() {
  const { begin, finish, signOut } = await import("./webshop.mjs");
  const person = new Person("edsger", PASSWORD);
  const { url, checks } = await begin();
  const { user, tokens } = await finish(await person.visit(url, `${APP}/webshop/callback`), checks);
  equal("user", [user.name, user.email], ["Edsger Dijkstra", "edsger@works.example"]);
  equal("a refresh token", typeof tokens.refresh_token, "string");
  equal("the end", (await person.visit(signOut(tokens), `${APP}/webshop/bye`)).pathname, "/webshop/bye");
}

await check("the documented login and sign-out", documented);
await check("discovery", discovery);
await check("code flow with PKCE, state and nonce; the ID token's signature", codeFlow);
await check("a wrong state, a used code and a denied consent are refused", refusals);
await check("userinfo, for this subject only", userinfo);
await check("introspection", introspection);
await check("refresh: new tokens, the same subject", refresh);
await check("revocation ends the grant", revocation);
await check("client_secret_post, client credentials", secretPost);
await check("private_key_jwt, pushed requests, signed userinfo", pushed);
await check("device flow", device);
await check("RP-initiated logout: back with state, no session left", logOut);
