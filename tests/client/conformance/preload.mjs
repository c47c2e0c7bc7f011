// Loaded before the program of @modelcontextprotocol/conformance: each of its requests carries the server's token, which
// it has no option for; what ends a request after ten seconds or a minute, which no option changes, takes ten minutes;
// and node 20 lacks fs.globSync, which its part for servers does not use.
import http from "node:http";
import { createRequire, register } from "node:module";

const authorization = "Bearer " + process.env.CELLBLOCK_MCP_TOKEN;

const fs = 'export * from "node:fs"; export { default } from "node:fs";\n' +
	'export function globSync() { throw new Error("not in this node"); }';
register("data:text/javascript," + encodeURIComponent(
	"const fs = " + JSON.stringify("data:text/javascript," + encodeURIComponent(fs)) + ";\n" +
	"export function resolve(specifier, context, next) {\n" +
	'	return specifier === "fs" ? { url: fs, shortCircuit: true } : next(specifier, context);\n' +
	"}"));

const { Agent, setGlobalDispatcher } = createRequire(process.argv[1])("undici");
setGlobalDispatcher(new Agent().compose((dispatch) => (options, handler) => {
	if (Array.isArray(options.headers)) options.headers.push("authorization", authorization);
	else options = { ...options, headers: { ...options.headers, authorization } };
	return dispatch(options, handler);
}));

const request = http.request;
http.request = (options, ...rest) =>
	request({ ...options, headers: { ...options.headers, authorization } }, ...rest);

globalThis.setTimeout = new Proxy(globalThis.setTimeout, {
	apply: (timer, self, [act, ms, ...rest]) =>
		Reflect.apply(timer, self, [act, ms === 10000 || ms === 60000 ? 600000 : ms, ...rest]),
});
