// Signing in by a token and by a link, and signing out.
import assert from "node:assert/strict";
import { Person } from "./page.mjs";

export default async function session(place) {
    const anna = await Person.enter(place);
    anna.allow("status of 401");
    await anna.go("questions", "h1:text('Sign in to Trellis')");
    await anna.isAccessible();
    await anna.find("#token").fill("not a token");
    await anna.find("#sign-in button").click();
    await anna.sees(".wrong[role=alert]");
    await anna.isAccessible();
    await anna.find("#token").fill(place.tokens.anna);
    await anna.find("#sign-in button").click();
    await anna.sees(".who:text('anna')");
    assert.equal(await anna.page.evaluate(() => document.cookie), "", "no script reads the session");
    assert.ok(!(await anna.page.content()).includes(place.tokens.anna));
    await anna.find("button:text('Sign out')").click();
    await anna.sees("#sign-in");
    await anna.go("", "#sign-in");
    assert.deepEqual(await anna.context.cookies(), []);

    // A link signs in once, and its token does not stay in the address.
    const link = await place.ask("link");
    const open = async () => {
        const person = await Person.enter(place);
        person.allow("status of 401");
        person.hosts.add(new URL(link).host);
        await person.page.goto(link);
        return person;
    };
    const first = await open();
    await first.sees(".who:text('anna')");
    await first.sees("h1:text('Runs')");
    assert.equal(new URL(first.page.url()).hash, "");
    const again = await open();
    await again.sees(".wrong[role=alert]");
    await again.sees("#sign-in");
    for (const person of [anna, first, again]) await person.leave();
}
