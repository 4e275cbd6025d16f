// Each role has only the buttons for its permitted actions.
import assert from "node:assert/strict";
import { Person } from "./page.mjs";

/** Buttons with an action, except those that every role has. */
const BUTTONS = "main button:not([aria-controls]):not(form.filters button):not(form.slider button)";

export default async function roles(place) {
    const { client } = place;
    const asks = await client.submit({ name: "approval", steps: [{ id: "release", approve: { who: "anybody", question: "May anybody?" } }] });
    const sleeps = await client.submit({ goal: "Sleep", agent_id: "sleep", child_id: "s", inputs: { ms: 3_600_000 } });
    await client.reaches(asks, "input_required");
    await client.reaches(sleeps, "working");
    const everywhere = ["Runs", "Questions", "Workers", "Agents", "Schedules", "Operations"];
    const views = ["", `runs/${sleeps}`, `runs/${sleeps}/contexts/s`, "questions", "workers", "agents", "schedules", "operations", `runs/${sleeps}/money`, `runs/${sleeps}/files`];
    const has = { // the views on which a role sees buttons, and some of them
        anna: { [`runs/${sleeps}`]: ["Cancel", "Raise"], [`runs/${sleeps}/contexts/s`]: ["Tell", "Cancel"], questions: ["approve", "deny"], workers: ["Drain"] },
        bert: { [`runs/${sleeps}`]: ["Cancel"], [`runs/${sleeps}/contexts/s`]: ["Tell", "Cancel"], questions: ["approve", "deny"] },
        olga: {},
    };
    for (const [who, buttons] of Object.entries(has)) {
        const person = await Person.enter(place, place.tokens[who]);
        const offered = who === "anna" ? [...everywhere, "Dead letters"] : everywhere;
        for (const view of views) {
            await person.go(view, `.who:text('${who}')`);
            const links = await person.find("header.top nav a").allTextContents();
            for (const name of offered) assert.ok(links.some((link) => link.trim().startsWith(name)), `${who} sees ${links}`);
            assert.equal(links.includes("Dead letters"), who === "anna");
            const found = await person.find(BUTTONS).allTextContents();
            for (const name of buttons[view] ?? []) assert.ok(found.some((text) => text.startsWith(name)), `${who} has no ${name} on ${view}: ${found}`);
            if (who !== "anna") assert.ok(!found.some((text) => text.startsWith("Drain") || text.startsWith("Raise")), `${who}, ${view}: ${found}`);
            if (who === "olga") assert.deepEqual(found, [], view);
        }
        if (who !== "anna") {
            person.allow("status of 403");
            await person.go("dead", "h1:text(\"This can't be shown\")");
            await person.isAccessible();
        }
        if (who === "olga") {
            await person.go("questions", "text=You can read these questions, but not answer them");
            assert.equal(await person.count(".cards form"), 0);
            await person.isAccessible();
        }
        await person.leave();
    }
    for (const trace of [asks, sleeps]) await client.ask("POST", `runs/${trace}/cancel`, {});
}
