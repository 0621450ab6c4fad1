// The latest requests: ids, lengths, times and outcome.

import { byId, clock, count, duration, element, json, milliseconds, rate } from "./dom.js";

let latest = null;

function outcome(request) {
  return `${request.status || "–"} ${request.error_code ?? request.end.replaceAll("_", " ")}`;
}

function row(request) {
  const cells = [
    ["Ended", clock(request.at), ""],
    ["Id", request.request_id || "–", "id"],
    ["Outcome", outcome(request), request.status >= 400 || request.error_code ? "bad" : "good"],
    ["Route", request.route, ""],
    ["Prompt", request.prompt_tokens === null ? "–" : count(request.prompt_tokens), "number"],
    ["Reply", request.output_tokens === null ? "–" : count(request.output_tokens), "number"],
    ["First token", request.first_token_seconds === null ? "–" : milliseconds(request.first_token_seconds), "number"],
    ["Speed", request.between_tokens_seconds ? `${rate(1 / request.between_tokens_seconds)}/s` : "–", "number"],
    ["Total", duration(request.seconds), "number"],
  ];
  return element("tr", {}, ...cells.map(([name, text, className]) => {
    const cell = element("td", { className, title: name === "Id" ? text : "" }, element("span", { textContent: text }));
    cell.dataset.name = name;
    return cell;
  }));
}

export async function showRequests(now) {
  if (now.last_request === latest) return;
  latest = now.last_request;
  try {
    const { ok, document: requests } = await json("/page/requests");
    if (!ok) throw new Error("no requests");
    byId("request-table").tBodies[0].replaceChildren(...requests.reverse().map(row));
    byId("request-table").hidden = !requests.length;
    byId("no-requests").hidden = requests.length > 0;
  } catch {
    latest = null; // the next poll asks again
  }
}
