// Reads /admin/live for as long as the page is open: fetch() and not EventSource, which cannot show a token.

const TOKEN = "replicarouter.admin-token";
const RETRY = [500, 1000, 2000, 3000]; // milliseconds between attempts, the last for ever
const SILENT = 6000; // milliseconds without a document after which a connection is given up
const HIDDEN = 60000; // milliseconds after which a page that nobody sees lets go of its connection

export const headers = () => {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
};

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** What an error answer says, in the router's own words. */
export async function reason(response) {
  try {
    const { error } = await response.json();
    return { message: error.message, wantsToken: response.status === 401 && error.param === "authorization" };
  } catch {
    return { message: `The router answered with status ${response.status}.`, wantsToken: false };
  }
}

/** `onDocument(document)` for each; `onTrouble(kind, message)` with "lost", "locked" or "refused". */
export class Feed {
  constructor(onDocument, onTrouble) {
    this.onDocument = onDocument;
    this.onTrouble = onTrouble;
    this.failures = 0;
    this.unlock = null;
  }

  /** Try again with this token. */
  enter(token) {
    sessionStorage.setItem(TOKEN, token);
    this.unlock?.();
  }

  async run() {
    for (;;) {
      await this.#seen();
      try {
        await this.#read();
      } catch {
        this.onTrouble("lost", "");
      }
      await pause(RETRY[Math.min(this.failures, RETRY.length - 1)]);
      this.failures += 1;
    }
  }

  /** Until somebody can see the page. */
  #seen() {
    if (!document.hidden) return Promise.resolve();
    return new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
  }

  /** One connection from its beginning to its end; throws when it breaks. */
  async #read() {
    const abort = new AbortController();
    const limits = { silent: 0, hidden: 0 };
    const end = () => abort.abort();
    const expect = () => {
      clearTimeout(limits.silent);
      limits.silent = setTimeout(end, SILENT);
    };
    const looked = () => {
      clearTimeout(limits.hidden);
      if (document.hidden) limits.hidden = setTimeout(end, HIDDEN);
    };
    document.addEventListener("visibilitychange", looked);
    expect();
    try {
      const response = await fetch("/admin/live", {
        headers: headers(), cache: "no-store", credentials: "same-origin", signal: abort.signal,
      });
      if (!response.ok) {
        clearTimeout(limits.silent);
        await this.#refused(response);
        return;
      }
      const text = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await text.read();
        if (done) throw new Error("the feed ended");
        expect();
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        // After a pause several may have come: the last says it all.
        if (events.length) this.#take(events.at(-1));
      }
    } finally {
      clearTimeout(limits.silent);
      clearTimeout(limits.hidden);
      document.removeEventListener("visibilitychange", looked);
    }
  }

  #take(event) {
    this.failures = 0;
    this.onDocument(JSON.parse(event.slice("data: ".length)));
  }

  async #refused(response) {
    const shown = sessionStorage.getItem(TOKEN) !== null;
    const { message, wantsToken } = await reason(response);
    if (!wantsToken) {
      this.onTrouble("refused", message);
      return;
    }
    sessionStorage.removeItem(TOKEN);
    this.onTrouble("locked", shown ? "The router does not accept this token." : "");
    await new Promise((done) => { this.unlock = done; });
    this.failures = 0;
  }
}
