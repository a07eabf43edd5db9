// Requests to the server. Addresses are relative, so that the page also works below the prefix of a proxy.

export class RequestError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function answer(response) {
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new RequestError(body.error || `status ${response.status}`, response.status);
}

export async function get(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return (await answer(await fetch(`api/${path}${query ? `?${query}` : ""}`))).json();
}

export async function post(path, body) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return (await answer(await fetch(`api/${path}`, options))).json();
}

/** Fetch arrays after a JSON header: {header, buffer, offset}. */
export async function getArrays(path) {
  const buffer = await (await answer(await fetch(`api/${path}`))).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return { header, buffer, offset: 4 + length };
}
