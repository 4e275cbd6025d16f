// A server is stopped and started again: the lamp shows it, and the page reconnects by itself, with
// the same session.
import { Person } from "./page.mjs";

export default async function restart(place) {
    const { client } = place;
    const trace = await client.submit({ goal: "Stay", agent_id: "ask", child_id: "asks" });
    await client.reaches(trace, "input_required");
    const [anna, bert] = [await Person.enter(place, place.tokens.anna), await Person.enter(place, place.tokens.bert)];
    for (const person of [anna, bert]) person.allow("net::ERR_");
    await anna.go(`runs/${trace}`, "#live:text('● live')");
    await bert.go("", "#live:text('● live')");
    await place.ask("stop");
    for (const person of [anna, bert]) await person.sees("#live:text('○ reconnecting')");
    // A button shows that the server does not answer.
    await anna.replying("", () => anna.find("#actions button:text('Cancel')").click());
    await anna.sees(".told:text(\"The server can't be reached.\")");
    await place.ask("start");
    for (const person of [anna, bert]) await person.sees("#live:text('● live')");
    // Later changes are shown again.
    await anna.replying("", () => anna.find("#actions button:text('Cancel')").click());
    await anna.sees("#head .mark:has-text('cancelled')");
    await bert.sees(`#t-${trace} .mark:has-text('cancelled')`);
    for (const person of [anna, bert]) await person.leave();
}
