package gateway_test

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const python = `
import os
def handle(event, context):
    if event.get("do") == "fail":
        raise ValueError("as asked")
    print("hello from python")
    return {"echo": event, "name": context.function_name, "left": context.get_remaining_time_in_millis() > 0}
`

// TestPython runs a handler under AWS's own runtime client for Python.
func TestPython(t *testing.T) {
	dir := cache(t, "python")
	interpreter := filepath.Join(dir, "bin/python")
	if matches, _ := filepath.Glob(filepath.Join(dir, "lib/*/site-packages/awslambdaric/__init__.py")); len(matches) == 0 {
		install(t, dir, "python3", "-m", "venv", dir)
		install(t, dir, interpreter, "-m", "pip", "install", "-q", "awslambdaric==4.*")
	}
	s := start(t)
	alice := s.person("alice")
	archive := zipFiles(t, map[string]string{"app.py": python, "bootstrap": "#!/bin/sh\ncd \"$LAMBDA_TASK_ROOT\"\nexec " + interpreter + " -m awslambdaric \"$_HANDLER\"\n"})
	if a := s.send(alice.token, "POST", `/deploy_function?function_name=py&settings={"handler":"app.handle","timeout":20}`, archive); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a := s.invoke(alice, "py", `{"x":[1,"ü"]}`, "X-Amz-Log-Type", "Tail")
	log, _ := base64.StdEncoding.DecodeString(a.header.Get("X-Amz-Log-Result"))
	if a.status != 200 || a.word("name") != "py" || a.json["left"] != true || !strings.Contains(string(log), "hello from python") {
		t.Errorf("%d %s, log %s", a.status, a.body, log)
	}
	if a := s.invoke(alice, "py", `{"do":"fail"}`); a.header.Get("X-Amz-Function-Error") != "Unhandled" || a.word("errorType") != "ValueError" || a.word("errorMessage") != "as asked" {
		t.Errorf("an exception: %v %s", a.header, a.body)
	}
}

const javascriptHandler = `
exports.handle = async (event, context) => {
  if (event.do === "fail") throw new TypeError("as asked");
  if (event.do === "exit") process.exit(3);
  console.log("hello from node");
  return { echo: event, name: context.functionName, left: context.getRemainingTimeInMillis() > 0 };
};
exports.stream = awslambda.streamifyResponse(async (event, out) => {
  if (event.do === "fail") throw new RangeError("as asked");
  if (event.do === "break") {
    out.write("first ");
    throw new RangeError("in the middle");
  }
  out = awslambda.HttpResponseStream.from(out, { statusCode: 203, headers: { "X-Mine": "yes" } });
  for (const word of ["one ", "two ", "three"]) out.write(word);
  out.end();
});
`

// nodeTools are what AWS's runtime client for Node builds its addon with: programs and Debian's packages of them.
var nodeTools = map[string]string{"autoconf": "autoconf", "automake": "automake", "libtoolize": "libtool", "cmake": "cmake", "make": "make", "g++": "g++"}

// haveTools installs the programs that are missing, or says which packages have them.
func haveTools(t *testing.T, packageOf map[string]string) {
	t.Helper()
	var missing []string
	for program, of := range packageOf {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, of)
		}
	}
	if len(missing) == 0 {
		return
	}
	slices.Sort(missing)
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		t.Fatalf("this test builds AWS's runtime client for Node: install %s", strings.Join(missing, ", "))
	}
	install(t, "/", "apt-get", "update", "-q")
	install(t, "/", "apt-get", append([]string{"install", "-qy", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"}, missing...)...)
}

// TestNode runs handlers under AWS's own runtime client for Node, which speaks the Runtime API by an addon in C++.
func TestNode(t *testing.T) {
	dir := cache(t, "node-runtime")
	runtime := filepath.Join(dir, "node_modules/aws-lambda-ric")
	if _, err := os.Stat(filepath.Join(runtime, "dist/rapid-client.node")); err != nil {
		haveTools(t, nodeTools)
		install(t, dir, "npm", "install", "--no-audit", "--no-fund", "--prefix", ".", "aws-lambda-ric@3.3.0")
	}
	s := start(t)
	alice := s.person("alice")
	archive := zipFiles(t, map[string]string{"app.js": javascriptHandler,
		"bootstrap": "#!/bin/sh\ncd \"$LAMBDA_TASK_ROOT\"\nexec node " + filepath.Join(runtime, "bin/index.mjs") + " \"$_HANDLER\"\n"})
	for name, handler := range map[string]string{"js": "app.handle", "stream": "app.stream"} {
		if a := s.send(alice.token, "POST", "/deploy_function?function_name="+name+`&settings={"handler":"`+handler+`","timeout":20,"memory":1024,"url_auth":"none"}`, archive); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	a := s.invoke(alice, "js", `{"x":[1,"ü"]}`, "X-Amz-Log-Type", "Tail")
	log, _ := base64.StdEncoding.DecodeString(a.header.Get("X-Amz-Log-Result"))
	if a.status != 200 || a.word("name") != "js" || a.json["left"] != true || !strings.Contains(string(log), "hello from node") {
		t.Errorf("%d %s, log %s", a.status, a.body, log)
	}
	if a := s.invoke(alice, "js", `{"do":"fail"}`); a.header.Get("X-Amz-Function-Error") != "Unhandled" || a.word("errorType") != "TypeError" || a.word("errorMessage") != "as asked" {
		t.Errorf("an exception: %v %s", a.header, a.body)
	}
	if a := s.invoke(alice, "js", `{"do":"exit"}`); a.header.Get("X-Amz-Function-Error") != "Unhandled" || !strings.Contains(a.word("errorMessage"), "exit status 3") {
		t.Errorf("an exit: %v %s", a.header, a.body)
	}
	if a := s.invoke(alice, "js", `{}`); a.status != 200 || a.word("name") != "js" {
		t.Errorf("after an exit: %d %s", a.status, a.body)
	}
	if a := s.send("", "GET", "/functions/stream/url/", nil); a.status != 203 || a.header.Get("X-Mine") != "yes" || string(a.body) != "one two three" {
		t.Errorf("a stream: %d %v %s", a.status, a.header, a.body)
	}
	for _, do := range []string{"fail", "break"} {
		if a := s.invoke(alice, "stream", fields{"do": do}); a.header.Get("X-Amz-Function-Error") != "Unhandled" || a.word("errorType") != "RangeError" {
			t.Errorf("a stream that fails, %s: %v %s", do, a.header, a.body)
		}
	}
}
