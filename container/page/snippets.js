// One request as code to paste: curl, boto3 and openai.

const BOTO3_NOTE = "# As on AWS. Locally: endpoint_url= what `make gateway` or `neuron-endpoint local up` prints.";

// A JSON value as a Python literal. JSON's escapes of strings are Python's, too.
function python(value, indent = "") {
  const deeper = `${indent}    `;
  const list = (open, items, close) => (items.length ? `${open}\n${items.map((item) => `${deeper}${item},\n`).join("")}${indent}${close}` : open + close);
  if (Array.isArray(value)) return list("[", value.map((item) => python(item, deeper)), "]");
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  return list("{", Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${python(item, deeper)}`), "}");
}

function curl({ body, origin }) {
  return `curl -sN ${origin}/v1/chat/completions -H 'Content-Type: application/json' --data-binary @- <<'BODY'
${JSON.stringify(body, null, 2)}
BODY`;
}

function boto3({ body }) {
  const { stream, stream_options, ...whole } = body;
  return `import json

import boto3

runtime = boto3.client("sagemaker-runtime")  ${BOTO3_NOTE}
body = ${python(whole)}
reply = runtime.invoke_endpoint(EndpointName="sample", ContentType="application/json", Body=json.dumps(body))
print(json.loads(reply["Body"].read())["choices"][0]["message"]["content"])`;
}

function openai({ body, origin, model }) {
  const { stream_options, ...given } = body;
  const fields = Object.entries({ model, ...given }).map(([name, value]) => `    ${name}=${python(value, "    ")},\n`);
  return `from openai import OpenAI

client = OpenAI(base_url="${origin}/v1", api_key="none")
stream = client.chat.completions.create(
${fields.join("")})
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)`;
}

export const SNIPPETS = { curl, boto3, openai };
