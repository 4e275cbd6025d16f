// The parts that every script uses: a browser and its people. Each person fails on an error of the
// console or of the page, a violation of the content security policy, a request to another server,
// an unexpected dialog, and any finding of axe.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.TRELLIS_BROWSER_MODULES}/`);
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/** Only bounds a hang: no test depends on the speed of the machine. */
export const PATIENCE = 120_000;
export const WIDE = { width: 1280, height: 900 };
export const NARROW = { width: 390, height: 844 };

export async function launch() {
    const browser = await chromium.launch({ executablePath: process.env.TRELLIS_CHROMIUM, args: ["--no-sandbox"], timeout: PATIENCE });
    browser.people = new Set();
    return browser;
}

/** Waits until `holds` returns a true value, and returns it. */
export async function until(what, holds, patience = PATIENCE) {
    const deadline = Date.now() + patience;
    for (;;) {
        const found = await holds();
        if (found) return found;
        if (Date.now() > deadline) assert.fail(`never: ${what}`);
        await new Promise((woken) => setTimeout(woken, 50));
    }
}

/** A person with a separate browser window. */
export class Person {
    faults = [];
    allowed = [];
    replies = [];

    /** Opens a window, signed in if a token is given. `base` is the address of the page. */
    static async enter(place, token, base = place.url) {
        const person = new Person();
        Object.assign(person, { base, isQuick: place.isQuick });
        person.hosts = new Set([new URL(base).host]);
        person.context = await place.browser.newContext({ viewport: WIDE, colorScheme: "light" });
        person.context.setDefaultTimeout(PATIENCE);
        person.context.setDefaultNavigationTimeout(PATIENCE);
        await person.context.addInitScript(() => {
            addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
        });
        person.context.on("console", (message) => { if (message.type() === "error") person.wrong(`console: ${message.text()}`); });
        person.context.on("weberror", (error) => person.wrong(`page: ${error.error().stack}`));
        person.context.on("request", (asked) => {
            const { protocol, host } = new URL(asked.url());
            if (protocol !== "data:" && !person.hosts.has(host)) person.wrong(`request: ${asked.url()}`);
        });
        person.context.on("dialog", (dialog) => person.asked(dialog));
        place.browser.people.add(person);
        person.page = await person.context.newPage();
        if (token) {
            const headers = { origin: new URL(base).origin };
            const answer = await person.context.request.post(`${base}sign-in`, { form: { token }, headers, maxRedirects: 0 });
            assert.equal(answer.status(), 303, await answer.text());
        }
        return person;
    }

    wrong(what) {
        if (!this.allowed.some((words) => what.includes(words))) this.faults.push(what);
    }

    async asked(dialog) {
        const reply = this.replies.shift();
        if (!reply) this.wrong(`dialog: ${dialog.message()}`);
        if (reply?.answer === undefined) await dialog.dismiss();
        else await dialog.accept(reply.answer);
        reply?.told(dialog.message());
    }

    /** Does `act` and answers its dialog; `undefined` dismisses it. Returns the dialog's text. */
    async replying(answer, act) {
        const told = new Promise((told) => this.replies.push({ answer, told }));
        await act();
        return await told;
    }

    /** Allows the browser's own error about a request that is expected to fail. */
    allow(words) {
        this.allowed.push(words);
    }

    find(selector, options) {
        return this.page.locator(selector, options);
    }

    /** Opens a view and waits until these elements are visible. */
    async go(path, ...visible) {
        await this.page.goto(this.base + path);
        for (const selector of visible) await this.sees(selector);
    }

    async sees(selector) {
        try {
            await this.find(selector).first().waitFor({ state: "visible" });
        } catch (error) {
            const shown = await this.page.locator("body").innerText().catch(() => "");
            throw new Error(`${this.page.url()} does not show ${selector}: ${error.message}\n${shown.slice(0, 2000)}`);
        }
    }

    async count(selector) {
        return await this.find(selector).count();
    }

    /** Asserts that no rule of axe is broken, in light and dark, on a wide and a narrow screen. In
     *  dark only the contrast of colours is checked. Motion is reduced, so that colours in the
     *  middle of a transition are not measured. */
    async isAccessible() {
        const { page } = this;
        const colours = { runOnly: ["color-contrast"] };
        const looks = [[WIDE, "light", {}], [WIDE, "dark", colours], [NARROW, "light", {}], [NARROW, "dark", colours]];
        await page.evaluate(AXE);
        for (const [viewport, colorScheme, rules] of this.isQuick ? looks.slice(0, 1) : looks) {
            await page.setViewportSize(viewport);
            await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
            await this.fits();
            const { violations } = await page.evaluate((rules) => globalThis.axe.run(document, { resultTypes: ["violations"], ...rules }), rules);
            const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html}\n${failureSummary}`).join("\n")}`);
            assert.deepEqual(told, [], `${page.url()}, ${viewport.width} wide, ${colorScheme}`);
        }
        await page.setViewportSize(WIDE);
        await page.emulateMedia({ colorScheme: "light", reducedMotion: null });
    }

    /** Asserts that no element is wider than the screen. */
    async fits() {
        const wider = await this.page.evaluate(() => {
            if (document.documentElement.scrollWidth <= innerWidth) return [];
            const all = [...document.body.querySelectorAll("*")].filter((one) => one.getBoundingClientRect().right > innerWidth || one.scrollWidth > innerWidth);
            return [document.documentElement.scrollWidth, ...all.map((one) => one.outerHTML.slice(0, 150))];
        });
        assert.deepEqual(wider, [], `${this.page.url()} is wider than the screen`);
    }

    /** Closes the window, and asserts that it had no faults. */
    async leave() {
        await this.context.close();
        assert.deepEqual(this.faults, []);
    }
}

/** A client of the HTTP interface, without a browser. */
export class Client {
    constructor(url, token) {
        Object.assign(this, { url, token });
    }

    async ask(method, path, body, status = undefined) {
        const headers = { authorization: `Bearer ${this.token}`, "content-type": "application/json" };
        const answer = await fetch(`${this.url}v1/${path}`, { method, headers, body: body && JSON.stringify(body) });
        const text = await answer.text();
        assert.ok(status ? answer.status === status : answer.ok, `${method} ${path}: ${answer.status} ${text}`);
        return text ? JSON.parse(text) : null;
    }

    /** Submits a run and returns its id. */
    async submit(run) {
        return (await this.ask("POST", "runs", run)).trace_id;
    }

    async apply(agent) {
        await this.ask("PUT", `agents/${agent.agent_id}`, agent);
    }

    async run(trace) {
        return await this.ask("GET", `runs/${trace}`);
    }

    /** A run as the list of runs shows it. */
    async found(trace) {
        return (await this.ask("GET", `runs?prefix=${trace}`)).runs[0];
    }

    /** Submits a run and waits for its end. */
    async finish(run) {
        const trace = await this.submit(run);
        await until(`${trace} ends`, async () => (await this.found(trace))?.ended_at);
        await until(`${trace} has an outcome`, async () => (await this.run(trace)).outcome);
        return trace;
    }

    /** Waits until a run has this status. */
    async reaches(trace, status, patience = PATIENCE) {
        await until(`${trace} is ${status}`, async () => (await this.found(trace))?.status === status, patience);
    }
}
