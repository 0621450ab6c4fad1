// Asks an endpoint through Vercel's ai. The only argument and the only output are JSON.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";

const { provider, url, name, question, toolName, schema, tooMany } = JSON.parse(process.argv[2]);
const given = { apiKey: "unused", baseURL: `${url}/v1` };
const models = {
  compatible: () => createOpenAICompatible({ ...given, name: "endpoint" })(name),
  chat: () => createOpenAI(given).chat(name),
  responses: () => createOpenAI(given).responses(name),
  messages: () => createAnthropic(given)(name),
};
const base = { model: models[provider](), prompt: question, temperature: 0, maxOutputTokens: 100, maxRetries: 0 };
const tools = { [toolName]: tool({ description: "asks", inputSchema: jsonSchema(schema) }) };
const forced = { ...base, tools, toolChoice: { type: "tool", toolName } };
const calls = (made) => made.map((call) => [call.toolName, call.input]);

const pieces = [];
for await (const piece of streamText(base).textStream) pieces.push(piece);
const said = { whole: (await generateText(base)).text, pieces };
if (provider !== "responses") {
  said.call = calls((await generateText(forced)).toolCalls);
  const stream = streamText(forced);
  await stream.consumeStream();
  said.streamedCall = calls(await stream.toolCalls);
}
try {
  await generateText({ ...base, maxOutputTokens: tooMany });
} catch (error) {
  said.error = { name: error.name, status: error.statusCode, message: error.message };
}
const errors = [];
const failing = streamText({ ...base, maxOutputTokens: tooMany, onError: ({ error }) => errors.push(error.message) });
await failing.consumeStream();
console.log(JSON.stringify({ ...said, streamedErrors: errors }));
