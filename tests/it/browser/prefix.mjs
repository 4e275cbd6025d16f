// The page behind a reverse proxy that serves it under a prefix and removes the prefix: every view,
// the live stream and buttons.
import assert from "node:assert/strict";
import { Agent, createServer, request } from "node:http";
import { Person, until } from "./page.mjs";
import { longGraph } from "./tree.mjs";
import { VIEWS, furnish } from "./views.mjs";

const PREFIX = "/team/trellis/";

/** A reverse proxy for the prefix; it answers 404 for every other path. */
async function proxy(to) {
    const { hostname, port } = new URL(to);
    const agent = new Agent({ keepAlive: true });
    const server = createServer((asked, answer) => {
        if (!asked.url.startsWith(PREFIX)) return void answer.writeHead(404).end();
        const headers = { ...asked.headers };
        const there = request({ hostname, port, agent, method: asked.method, path: asked.url.slice(PREFIX.length - 1), headers }, (come) => {
            answer.writeHead(come.statusCode, come.headers);
            answer.flushHeaders();
            come.pipe(answer);
        });
        there.on("error", () => answer.destroy());
        answer.on("close", () => there.destroy());
        asked.pipe(there);
    });
    await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
    return { base: `http://127.0.0.1:${server.address().port}${PREFIX}`, stop: () => { server.closeAllConnections(); server.close(); agent.destroy(); } };
}

export default async function prefix(place) {
    const { client } = place;
    const made = await furnish(place);
    const before = await proxy(place.url);
    const anna = await Person.enter(place, null, before.base);
    anna.allow("status of 401");
    await anna.go("questions", "#sign-in");
    await anna.find("#token").fill(place.tokens.anna);
    await anna.find("#sign-in button").click();
    await anna.sees(".who:text('anna')");
    for (const { path, sees, isLive } of VIEWS(made)) {
        await anna.go(path, ...sees);
        if (isLive) await anna.sees("#live:text('● live')");
        const hrefs = await anna.find("a[href]:not([href^='http://traces.example']), form[action]").evaluateAll((links) => links.map((link) => new URL(link.getAttribute("href") ?? link.getAttribute("action"), document.baseURI).href));
        assert.deepEqual(hrefs.filter((href) => !href.startsWith(before.base)), [], `links of ${path}`);
    }
    // Links, filters, buttons, and live updates.
    await anna.go("", `#t-${made.sleeps}`);
    await anna.find("header.top nav a:text('Workers')").click();
    await anna.sees("h1:text('Workers')");
    await anna.find("header.top nav a:text('Runs')").click();
    await anna.find("[name=label]").fill("team=night");
    await anna.find("button:text('Filter')").click();
    await anna.find(`#t-${made.sleeps} .goal`).click();
    await anna.sees("#live:text('● live')");
    await anna.replying("", () => anna.find("#actions button:text('Cancel')").click());
    await anna.sees("#head .mark:has-text('cancelled')");
    await anna.go("questions");
    const card = anna.find(`.card:has(a[href='runs/${made.asks}'])`);
    await anna.replying("", () => card.locator("button:text('red')").click());
    await anna.sees(".told:has-text('Answered')");
    await client.reaches(made.asks, "completed");
    const long = await client.submit(longGraph(60));
    await client.reaches(long, "input_required");
    await anna.go(`runs/${long}`);
    await anna.sees("#s-long-n60");
    await client.ask("POST", `runs/${long}/cancel`, {});
    await anna.find("button:text('Sign out')").click();
    await anna.sees("#sign-in");
    await until("the first page is shown again", async () => anna.page.url() === before.base);
    await anna.leave();
    before.stop();
}
