// A user with a browser that supports cookies, redirects and forms, and no scripts.

/** Login, consent and the last page: no flow needs more. */
const MOST_PAGES = 12;

const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'", "#x27": "'" };

function attribute(tag, name) {
  const found = new RegExp(`\\s${name}="([^"]*)"`).exec(tag);
  return found?.[1].replace(/&(#?\w+);/g, (text, entity) => ENTITIES[entity] ?? text);
}

/** The first form of a page: its target, its fields, and whether it has a button of that name. */
function formOf(html) {
  const [, head, body] = /(<form\b[^>]*>)([\s\S]*?)<\/form>/.exec(html) ?? [];
  if (head === undefined) return undefined;
  const fields = new URLSearchParams();
  for (const [tag] of body.matchAll(/<input\b[^>]*>/g)) {
    if (attribute(tag, "name")) fields.set(attribute(tag, "name"), attribute(tag, "value") ?? "");
  }
  const buttons = Array.from(body.matchAll(/<button\b[^>]*>/g), ([tag]) => attribute(tag, "name"));
  return { action: attribute(head, "action") ?? "", fields, asksDecision: buttons.includes("decision") };
}

export class Person {
  #cookies = new Map();

  constructor(name, password) {
    this.name = name;
    this.password = password;
  }

  /** Sends one request. Cookies are kept, redirects are not followed. */
  async #send(url, body) {
    const cookie = Array.from(this.#cookies, ([name, value]) => `${name}=${value}`).join("; ");
    const headers = { accept: "text/html", "accept-language": "en", ...(cookie && { cookie }) };
    const answer = await fetch(url, { method: body ? "POST" : "GET", body, headers, redirect: "manual" });
    for (const line of answer.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
      if (/max-age=0\b/i.test(line)) this.#cookies.delete(name);
      else this.#cookies.set(name, value);
    }
    return answer;
  }

  /**
   * Opens an address and completes the provider's pages. Returns the address below `end` that the
   * browser is sent to, or the text of the page without a form. `typed` goes into other forms.
   */
  async visit(address, end, { decision = "allow", ...typed } = {}) {
    let url = new URL(address);
    let body;
    for (let page = 0; page < MOST_PAGES; page++) {
      const answer = await this.#send(url, body);
      body = undefined;
      if (answer.headers.has("location")) {
        url = new URL(answer.headers.get("location"), url);
        if (end !== undefined && url.href.startsWith(end)) return url;
        continue;
      }
      const html = await answer.text();
      if (!answer.ok) throw new Error(`${url.pathname} has status ${answer.status}: ${html.slice(-300)}`);
      const form = formOf(html);
      const wanted = Object.keys(typed).filter((name) => form?.fields.has(name));
      if (form?.fields.has("password")) {
        form.fields.set("username", this.name);
        form.fields.set("password", this.password);
      } else if (form?.asksDecision) {
        form.fields.set("decision", decision);
      } else if (wanted.length) {
        for (const name of wanted) form.fields.set(name, typed[name]);
        typed = {};
      } else {
        return html;
      }
      url = new URL(form.action, url);
      body = form.fields;
    }
    throw new Error(`more than ${MOST_PAGES} pages, the last at ${url}`);
  }
}
