// A place where nothing has happened yet says what to do first.
import { Person } from "./page.mjs";

export default async function empty(place) {
    const anna = await Person.enter(place, place.tokens.anna);
    for (const [path, words] of [
        ["", "There are no runs yet"],
        ["questions", "Nobody waits for an answer"],
        ["agents", "No profile was applied yet"],
        ["schedules", "There are no schedules yet"],
        ["dead", "There are none"],
    ]) {
        await anna.go(path, `.empty :text('${words}')`);
        await anna.isAccessible();
    }
    // The first run announces itself.
    await anna.go("", "#live:text('● live')");
    await place.client.finish({ goal: "The first", agent_id: "echo" });
    await anna.find("#news a:text('1 new')").click();
    await anna.sees(".run .goal:text('The first')");
    await anna.leave();
}
