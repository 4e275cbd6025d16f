// A new deployment shows the first steps to do.
import assert from "node:assert/strict";
import { Person } from "./page.mjs";

export default async function empty(place) {
    const anna = await Person.enter(place, place.tokens.anna);
    for (const [path, words] of [
        ["", "There are no runs yet"],
        ["questions", "No question is open"],
        ["agents", "No profile was applied yet"],
        ["schedules", "There are no schedules yet"],
        ["dead", "There are none"],
    ]) {
        await anna.go(path, `.empty :text('${words}')`);
        await anna.isAccessible();
    }
    // A client can start an example there and watch it to its end. Observers of the list see it
    // appear.
    const button = (person) => person.page.getByRole("button", { name: "Run an example" });
    const olga = await Person.enter(place, place.tokens.olga);
    await olga.go("", "#live:text('● live')");
    assert.equal(await button(olga).count(), 0, "an observer has no button to run an example");
    await anna.go("", "#live:text('● live')");
    await button(anna).click();
    await anna.sees("h1:text('playground')");
    await olga.find("#news a:text('1 new')").click();
    await olga.sees(".run .goal:text('playground')");
    await anna.sees("#head .mark.good");
    assert.deepEqual(await anna.find(".tree .row .name").allTextContents(), ["playground", "ants", "bees", "compare"]);
    for (const person of [anna, olga]) await person.leave();
}
