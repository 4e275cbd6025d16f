// With a configured trace viewer, each run has a link to its trace there.
import assert from "node:assert/strict";
import { Person } from "./page.mjs";

export default async function traced(place) {
    const trace = await place.client.finish({ goal: "Leave a trace", agent_id: "echo" });
    const anna = await Person.enter(place, place.tokens.anna);
    anna.hosts.add("traces.example");
    await anna.context.route("http://traces.example/**", (route) => route.fulfill({ body: "spans" }));
    await anna.go(`runs/${trace}`, "#head .mark.good");
    const link = anna.page.getByRole("link", { name: "Trace ↗" });
    const [opened] = await Promise.all([anna.context.waitForEvent("page"), link.click()]);
    await opened.waitForURL(`http://traces.example/${trace}`);
    assert.equal(await opened.evaluate(() => globalThis.opener), null, "the opened page has no opener");
    assert.equal(await opened.evaluate(() => document.referrer), "");
    await anna.leave();
}
