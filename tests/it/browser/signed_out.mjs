// A restarted gateway has no sessions: its visitors must sign in again, and then return to the same
// view.
import { Person } from "./page.mjs";

export default async function signedOut(place) {
    const { client } = place;
    const trace = await client.submit({ goal: "Stay", agent_id: "ask", child_id: "asks" });
    await client.reaches(trace, "input_required");
    const anna = await Person.enter(place, place.tokens.anna);
    anna.allow("net::ERR_");
    anna.allow("status of 401");
    await anna.go(`runs/${trace}`, "#live:text('● live')");
    await place.ask("stop");
    await anna.sees("#live:text('○ reconnecting')");
    await place.ask("start");
    await anna.sees("#sign-in");
    await anna.find("#token").fill(place.tokens.anna);
    await anna.find("#sign-in button").click();
    await anna.sees("h1:text('Runs')");
    await anna.go(`runs/${trace}`, "#live:text('● live')");
    await client.ask("POST", `runs/${trace}/cancel`, {});
    await anna.sees("#head .mark:has-text('cancelled')");
    await anna.leave();
}
