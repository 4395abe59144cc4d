// oidc-provider as the provider of a gateway. `CLIENTS_PROVIDER` is its configuration in JSON:
// `issuer`, `port`, `clients` and `people` by name.

import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";

import { Provider } from "oidc-provider";

const { issuer, port, clients, people } = JSON.parse(process.env.CLIENTS_PROVIDER);

/** Resource servers. Access tokens for the first are JWTs, those for the second are opaque. */
const RESOURCES = { "https://orders.example": "jwt", "https://invoices.example": "opaque" };

/** Tokens issued so far, by grant type. */
const issued = {};

function signingKey(type, options, alg) {
  const { privateKey } = generateKeyPairSync(type, options);
  return { ...privateKey.export({ format: "jwk" }), kid: alg, alg, use: "sig" };
}

const provider = new Provider(issuer, {
  clients,
  jwks: {
    keys: [signingKey("rsa", { modulusLength: 2048 }, "RS256"), signingKey("ec", { namedCurve: "P-256" }, "ES256")],
  },
  cookies: { keys: [randomBytes(32).toString("base64")] },
  claims: {
    openid: ["sub"], profile: ["name", "preferred_username"], email: ["email", "email_verified"], groups: ["groups"],
  },
  scopes: ["openid", "offline_access", "orders:read"],
  pkce: { required: () => true },
  // Its own dispatcher sends nothing to this machine, and the gateway's back-channel logout is here.
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
  findAccount: (_context, id) => people[id] && { accountId: id, claims: () => ({ sub: id, ...people[id] }) },
  interactions: { url: (_context, { uid }) => `/interaction/${uid}` },
  features: {
    devInteractions: { enabled: false },
    backchannelLogout: { enabled: true },
    clientCredentials: { enabled: true },
    introspection: {
      enabled: true,
      // a resource server introspects tokens of other clients
      allowedPolicy: (_context, client, token) => client.clientId === "gateway" || token.clientId === client.clientId,
    },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => undefined,
      getResourceServerInfo: (_context, resource) => ({
        scope: "orders:read", audience: resource, accessTokenTTL: 300, accessTokenFormat: RESOURCES[resource],
        jwt: { sign: { alg: "ES256" } },
      }),
    },
    rpInitiatedLogout: {
      enabled: true,
      logoutSource: (context, form) => {
        const button = '<button type="submit" name="logout" value="yes">Sign out</button>';
        context.body = page(form.replace("</form>", `${button}</form>`));
      },
    },
  },
});

provider.on("grant.success", (context) => {
  const type = context.oidc.params.grant_type;
  issued[type] = (issued[type] ?? 0) + 1;
});
/** What of an event's arguments the log has. */
const logged = (told) => told.error_detail ?? told.error_description ?? told.clientId ?? told;

for (const event of ["server_error", "grant.error", "authorization.error", "backchannel.error", "introspection.error"]) {
  provider.on(event, (_context, ...told) => console.error(event, ...told.map(logged)));
}

function page(content) {
  return `<!DOCTYPE html><html lang="en"><head><title>Node Works</title></head><body>${content}</body></html>`;
}

/** The grant of everything that the client asks for. */
async function grantOf({ params, session, grantId, prompt: { details } }) {
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  if (details.missingOIDCScope) grant.addOIDCScope(details.missingOIDCScope.join(" "));
  if (details.missingOIDCClaims) grant.addOIDCClaims(details.missingOIDCClaims);
  for (const [resource, scopes] of Object.entries(details.missingResourceScopes ?? {})) {
    grant.addResourceScope(resource, scopes.join(" "));
  }
  return grant.save();
}

/** The pages of a login: a name, then consent. */
async function interaction(request, response) {
  const details = await provider.interactionDetails(request, response);
  const isLogin = details.prompt.name === "login";
  if (request.method === "POST") {
    let body = "";
    for await (const piece of request) body += piece;
    const result = isLogin
      ? { login: { accountId: new URLSearchParams(body).get("login") } }
      : { consent: { grantId: await grantOf(details) } };
    return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: !isLogin });
  }
  const [fields, button] = isLogin
    ? ['<label for="login">Name</label><input id="login" name="login">', "Sign in"]
    : ["", "Allow"];
  response.setHeader("content-type", "text/html; charset=utf-8");
  response.end(page(`<form method="post">${fields}<button type="submit">${button}</button></form>`));
}

const callback = provider.callback();

createServer((request, response) => {
  if (request.url.startsWith("/interaction/")) {
    interaction(request, response).catch((problem) => {
      console.error(problem);
      response.statusCode = 500;
      response.end(String(problem));
    });
  } else if (request.url === "/issued") {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(issued));
  } else {
    callback(request, response);
  }
}).listen(port, "127.0.0.1");
