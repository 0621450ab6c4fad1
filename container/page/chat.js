// A chat over /v1/chat/completions: streamed markdown, its parameters, and the speed of each reply.

import { afterPaint, byId, copy, element, milliseconds, rate } from "./dom.js";
import { hasMarkdown, loadMarkdown, markdown } from "./markdown.js";
import { SNIPPETS } from "./snippets.js";

const SESSION = "X-Amzn-SageMaker-Session-Id";
const NEW_SESSION = "X-Amzn-SageMaker-New-Session-Id";
const DRAWS_EVERY = 80; // milliseconds between two renderings of a streamed reply
const CUT = "The reply was cut by max tokens or the context before its answer began. Allow more tokens.";
const BROKEN = "The reply ended early. The reason is in the container's log.";
let messages = [];
let pictures = []; // data URLs that the next message has
let running = null; // the AbortController of the reply that streams
let session = null;
let endpoint = { state: "loading" };

// The documents of a stream of server-sent events, however its bytes were cut.
async function* documents(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

function requestBody() {
  const system = byId("system").value.trim();
  const [temperature, maxTokens] = ["temperature", "max-tokens"].map((id) => byId(id).valueAsNumber);
  const model = byId("chosen-model").value;
  return {
    ...(byId("chosen-model").length > 1 && { model }),
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    ...(Number.isFinite(temperature) && { temperature }),
    ...(Number.isFinite(maxTokens) && { max_tokens: maxTokens }),
    stream: true,
    stream_options: { include_usage: true },
  };
}

async function post(body, signal) {
  const wanted = byId("in-session").checked;
  const headers = { "Content-Type": "application/json", ...(wanted && { [SESSION]: session ?? "NEW_SESSION" }) };
  const reply = await fetch("/v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
  if (reply.ok) {
    const begun = reply.headers.get(NEW_SESSION);
    if (begun) session = begun.split(";")[0];
    byId("session-id").textContent = session ?? "";
    return reply;
  }
  const { error } = await reply.json();
  if (error.code !== "session_not_found") throw new Error(error.message);
  session = null; // it has expired, or its serving process has ended
  return post(body, signal);
}

function scroll(line) {
  const box = byId("messages");
  if (box.scrollHeight - box.scrollTop - box.clientHeight < 160) box.scrollTop = box.scrollHeight;
  else if (!line.isConnected) line.scrollIntoView({ block: "nearest" });
}

function say(role, who, ...content) {
  byId("messages").querySelector(".empty")?.remove();
  const line = element("article", { className: `message ${role}` }, element("p", { className: "who", textContent: who }), ...content);
  byId("messages").append(line);
  byId("messages").scrollTop = byId("messages").scrollHeight;
  return line;
}

const lastOf = (role) => [...byId("messages").querySelectorAll(`.${role}`)].at(-1);

// A streamed reply on the page. It renders at most every DRAWS_EVERY milliseconds.
class Reply {
  constructor(body) {
    this.body = body;
    this.answer = "";
    this.thoughts = "";
    this.tokens = null;
    this.finish = "";
    this.began = performance.now();
    this.first = this.last = null;
    this.thinking = element("div", { className: "thinking muted", title: "What the model thinks before it answers. It is not sent again" });
    this.text = element("div", { className: "text" });
    this.line = say("assistant", body.model ?? byId("model").textContent, this.thinking, this.text);
    this.line.ariaBusy = "true";
  }

  take(chunk) {
    if (chunk.error) throw new Error(chunk.error.message);
    this.tokens = chunk.usage?.completion_tokens ?? this.tokens;
    const choice = chunk.choices?.[0];
    this.finish = choice?.finish_reason ?? this.finish;
    const thought = choice?.delta?.reasoning ?? choice?.delta?.reasoning_content ?? "";
    const piece = choice?.delta?.content ?? "";
    if (!thought && !piece) return;
    this.last = performance.now();
    this.first ??= this.last;
    this.thoughts += thought;
    this.answer += piece;
    this.timer ??= setTimeout(() => this.draw(), DRAWS_EVERY);
  }

  draw() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.thinking.textContent = this.thoughts.trim();
    this.text.replaceChildren(hasMarkdown() ? markdown(this.answer) : this.answer);
    this.text.classList.toggle("plain", !hasMarkdown());
    scroll(this.text);
  }

  speed(stopped) {
    const parts = [];
    if (this.tokens !== null) parts.push(`${this.tokens} tokens`);
    if (this.first !== null) parts.push(`first after ${milliseconds((this.first - this.began) / 1000)}`);
    if (this.tokens > 1 && this.last > this.first) parts.push(`${rate((1000 * (this.tokens - 1)) / (this.last - this.first))} tokens/s`);
    if (stopped) parts.push("stopped");
    else if (this.finish === "length") parts.push("cut by max tokens or the context");
    return parts.join(" · ");
  }

  end(stopped) {
    if (this.answer || this.timer) this.draw();
    this.line.ariaBusy = "false";
    const button = (name, title, click) => element("button", { type: "button", className: `quiet ${name.toLowerCase()}`, textContent: name, title, onclick: click });
    const speed = element("span", { className: "speed muted", textContent: this.speed(stopped), title: "Measured in this browser, from the moment it sent the request" });
    this.line.append(element("footer", {}, speed,
      button("Copy", "Copies the reply's text", (event) => copy(this.answer, event.target)),
      button("Code", "This request as curl, boto3 or openai", () => showCode(this.body)),
      button("Regenerate", "Asks again for this reply", () => regenerate(this))));
    scroll(this.line);
  }
}

async function ask() {
  const mine = (running = new AbortController());
  lastOf("error")?.remove();
  const reply = new Reply(requestBody());
  let error = null;
  busy(true);
  try {
    for await (const chunk of documents((await post(reply.body, mine.signal)).body)) reply.take(chunk);
  } catch (caught) {
    // A failed stream is closed without its end mark. The browser may drop its last event, which has the reason.
    error = caught;
  }
  if (running !== mine) return; // a new chat has begun meanwhile
  running = null;
  if (!reply.answer) error ??= new Error(reply.finish === "length" ? CUT : "The reply has no text.");
  const stopped = error?.name === "AbortError";
  if (error && !reply.answer) reply.line.remove();
  else reply.end(stopped);
  if (error && !stopped) say("error", "Error", element("p", { textContent: error instanceof TypeError ? BROKEN : error.message }));
  if (reply.answer) messages.push({ role: "assistant", content: reply.answer });
  else takeBack();
  busy(false);
}

// A message without a reply is not sent again with the next one. Its text and its images go back to where they were.
function takeBack() {
  const { content } = messages.pop();
  lastOf("user")?.remove();
  const parts = typeof content === "string" ? [{ type: "text", text: content }] : content;
  if (!byId("prompt").value) byId("prompt").value = parts.at(-1).text;
  pictures.unshift(...parts.filter((part) => part.type === "image_url").map((part) => part.image_url.url));
  showPictures();
}

function regenerate(reply) {
  if (running || lastOf("assistant") !== reply.line) return;
  reply.line.remove();
  messages.pop();
  ask();
}

function send() {
  const text = byId("prompt").value.trim();
  if (!text || running || endpoint.state !== "ready") return;
  const parts = pictures.map((url) => ({ type: "image_url", image_url: { url } }));
  messages.push({ role: "user", content: parts.length ? [...parts, { type: "text", text }] : text });
  say("user", "You", ...pictures.map((src) => element("img", { src, alt: "An image of this message" })), element("div", { className: "text plain", textContent: text }));
  byId("prompt").value = "";
  pictures = [];
  showPictures();
  ask();
}

function clear() {
  running?.abort();
  running = null;
  messages = [];
  if (session) fetch("/invocations", { method: "POST", headers: { "Content-Type": "application/json", [SESSION]: session }, body: '{"requestType": "CLOSE"}' }).catch(() => {});
  session = null;
  byId("session-id").textContent = "";
  byId("messages").replaceChildren();
  busy(false);
  byId("prompt").focus();
}

function busy(is) {
  const focused = document.activeElement;
  byId("stop").hidden = !is;
  byId("send").hidden = is;
  if (is && focused === byId("send")) byId("stop").focus();
  if (!is && focused === byId("stop")) byId("prompt").focus();
  byId("messages").classList.toggle("busy", is);
}

function showPictures() {
  byId("pictures").replaceChildren(...pictures.map((src, index) => element("li", {},
    element("img", { src, alt: `Image ${index + 1}` }),
    element("button", { type: "button", textContent: "×", ariaLabel: `Remove image ${index + 1}`, onclick: () => { pictures.splice(index, 1); showPictures(); } }))));
}

function readPictures(files) {
  for (const file of files) {
    const reader = new FileReader();
    reader.onload = () => { pictures.push(reader.result); showPictures(); };
    reader.readAsDataURL(file);
  }
}

function showCode(body, language = "curl") {
  const source = { body, origin: location.origin, model: body.model ?? byId("model").textContent };
  byId("code-text").textContent = SNIPPETS[language](source);
  byId("languages").replaceChildren(...Object.keys(SNIPPETS).map((name) => element("button", {
    type: "button", textContent: name, ariaPressed: String(name === language), onclick: () => { showCode(body, name); byId("languages").querySelector("[aria-pressed=true]").focus(); },
  })));
  if (!byId("code").open) byId("code").showModal();
}

export function showChat(now) {
  endpoint = now;
  const ready = now.state === "ready";
  byId("send").disabled = !ready;
  byId("hint").textContent = ready ? "Enter sends, Shift+Enter breaks the line." : `The endpoint is not ready (${now.state}).`;
  if (!now.models) return;
  const names = now.models.map((model) => model.id);
  const select = byId("chosen-model");
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) {
    const chosen = select.value;
    select.replaceChildren(...now.models.map(({ id, parent }) => element("option", { value: id, textContent: parent ? `${id} (adapter)` : id })));
    if (names.includes(chosen)) select.value = chosen;
  }
  select.parentElement.hidden = names.length < 2;
  byId("attach").hidden = !now.images;
  byId("in-session").parentElement.hidden = !now.sessions;
}

export function startChat() {
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  byId("stop").addEventListener("click", () => running?.abort());
  byId("clear").addEventListener("click", clear);
  byId("picture").addEventListener("change", (event) => { readPictures(event.target.files); event.target.value = ""; });
  byId("code-close").addEventListener("click", () => byId("code").close());
  byId("code-copy").addEventListener("click", (event) => copy(byId("code-text").textContent, event.target));
  afterPaint(loadMarkdown);
}
