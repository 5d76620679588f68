// The browser, and people in it: each has a context of her own, signs in with a token, and is watched for what no page may do.
import { chromium } from "playwright-core";
import { check } from "./claims.mjs";
import { told } from "./fleet.mjs";

const SWITCHES = ["--no-sandbox", "--disable-quic", "--disable-background-networking"];

export async function open(later) {
  const browser = await chromium.launch({ executablePath: told.chromium, headless: true, args: SWITCHES });
  later(() => browser.close());
  return browser;
}

/** Somebody who looks, signed in unless `token` is null. */
export async function visitor(browser, token, { scheme = "light", locale = "en-GB", width = 1280, script = true, ...more } = {}) {
  const context = await browser.newContext({
    baseURL: told.url,
    colorScheme: scheme,
    locale,
    timezoneId: "Europe/Zurich",
    viewport: { width, height: 900 },
    javaScriptEnabled: script,
    ...more,
  });
  context.setDefaultTimeout(10_000);
  if (token) await signIn(context, token);
  const page = await context.newPage();
  return { context, page, seen: watch(page), close: () => context.close() };
}

/** Signs in as the form does, without a page: the context keeps the cookie. */
export async function signIn(context, token) {
  const answer = await context.request.post("/console/login", { form: { token }, maxRedirects: 0 });
  check(answer.status() === 303, "the sign-in to lead on with 303", answer.status());
}

/** What a page does that none may do, as it happens. */
export function watch(page) {
  const seen = { dialogs: [], errors: [], foreign: [], refused: [] };
  page.on("dialog", (dialog) => {
    seen.dialogs.push(dialog.message());
    dialog.dismiss().catch(() => {});
  });
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("console", (line) => {
    const text = line.text();
    if (/Content.Security.Policy|Refused to/i.test(text)) seen.refused.push(text);
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(`${told.url}/`) && !url.startsWith("data:")) seen.foreign.push(url);
  });
  return seen;
}

/** How much wider than its window a page is: what one has to scroll sideways for. */
export const overhang = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

/** Waits until a page that follows has its stream: from then on it hears of every change. */
export const follows = (page) => page.waitForFunction(() => performance.getEntriesByType("resource").some((it) => it.name === location.href));
