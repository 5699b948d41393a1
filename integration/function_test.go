package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// note is what integration/notes writes of a message, and answers to other invocations.
type note struct {
	Message   string
	Version   string
	Directory string
	PID       int
	Child     int
}

// node is the name of the member on which the handler ran.
func (n *note) node(c *testCluster) string {
	inside, _ := filepath.Rel(c.dir, n.Directory)
	name, _, _ := strings.Cut(inside, string(filepath.Separator))
	return name
}

// notebook is a function on a cluster, and what it wrote down.
type notebook struct {
	*testCluster
	file string
}

// cli runs the command line against a node.
func cli(t *testing.T, p *process, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(binary, append(args, "--json", "--server", p.url, "--token", p.token)...)
	var words bytes.Buffer
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s\n%s", args, err, &words, p.log)
	}
	return out
}

// ended tells that a process has ended, whether its parent has noticed or not.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// wantVersion invokes the function through a node.
func (b *notebook) wantVersion(m *member, version string) {
	b.t.Helper()
	var n note
	if out := cli(b.t, m.process, "function", "invoke", "notes", "{}"); json.Unmarshal(out, &n) != nil || n.Version != version || n.node(b.testCluster) != m.name {
		b.t.Errorf("%s answers %s, want version %s of its own", m.name, out, version)
	}
}

// read returns what was written down so far.
func (b *notebook) read() (notes []note) {
	b.t.Helper()
	raw, _ := os.ReadFile(b.file) // nothing was written yet
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		var n note
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			b.t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		notes = append(notes, n)
	}
	return notes
}

// publish sends numbered messages of a round through one node.
func (b *notebook) publish(m *member, topic int64, round string, count int) {
	b.t.Helper()
	messages := make([]object, count)
	for i := range messages {
		messages[i] = object{"message_content": fmt.Sprintf("%s %d", round, i), "key": fmt.Sprint(i)}
	}
	must(b.t, m.process, b.token, "POST", "/publish_messages", object{"topic_id": topic, "messages": messages}, nil)
}

// wait returns when so many messages of a round were written down, with the notes of the round.
func (b *notebook) wait(round string, count int) (notes []note) {
	b.t.Helper()
	for deadline := time.Now().Add(120 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		notes = nil
		different := map[string]bool{}
		for _, n := range b.read() {
			if strings.HasPrefix(n.Message, round+" ") {
				notes = append(notes, n)
				different[n.Message] = true
			}
		}
		if len(different) >= count {
			return notes
		}
		if time.Now().After(deadline) {
			for _, m := range b.members {
				b.t.Logf("%s:\n%s", m.name, m.log)
			}
			b.t.Fatalf("%d of %d messages of round %q were handled", len(different), count, round)
		}
	}
}

// buildNotes makes the directory of the function.
func buildNotes(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bootstrap"), "./notes")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// TestClusterHostsAFunction deploys a function through one node and uses it through the others; what it is to handle survives its node.
func TestClusterHostsAFunction(t *testing.T) {
	c := newCluster(t, 3)
	b := &notebook{c, filepath.Join(t.TempDir(), "notes")}
	one, two, three := c.members[0], c.members[1], c.members[2]
	env := []string{"--env", "NOTES=" + b.file, "--env", "WORK=20ms"}
	cli(t, one.process, append([]string{"function", "deploy", "notes", buildNotes(t), "--timeout", "20s", "--memory", "512", "--max-instances", "2"}, env...)...)
	for _, m := range c.members[1:] {
		b.wantVersion(m, "1")
	}

	const count = 60
	topic := newTopic(t, one.process, b.token, object{"topic_name": "orders", "rule_id": "open", "partitions": 12})
	must(t, two.process, b.token, "POST", "/subscribe", object{"topic_id": topic, "ack_deadline": 30,
		"target": object{"type": "function", "function": "notes", "batch_size": 5, "concurrency": 4}, "retry_schedule": []any{0, 0.5, 1, 2, 5}}, nil)
	b.publish(three, topic, "first", count)
	nodes := map[string]int{}
	for _, n := range b.wait("first", count) {
		nodes[n.node(c)]++
		if n.Version != "1" {
			t.Errorf("%q came to version %s", n.Message, n.Version)
		}
	}
	if len(nodes) != 3 {
		t.Errorf("not every node had a part of the work: %v", nodes)
	}

	cli(t, three.process, append([]string{"function", "update", "notes", "--env", "NEW=yes"}, env...)...)
	for _, m := range c.members {
		b.wantVersion(m, "2")
	}
	b.publish(one, topic, "second", count)
	for _, n := range b.wait("second", count) {
		if n.Version != "2" {
			t.Errorf("%q came to version %s after the change", n.Message, n.Version)
		}
	}
	cli(t, two.process, "function", "update", "notes", "--env", "NOTES="+b.file, "--env", "WORK=200ms")
	b.survives(topic, two, one, count)
	for _, m := range c.members { // in order, so that no empty control group is left on the machine
		if code := m.terminate(); code != 0 {
			t.Errorf("exit code %d\n%s", code, m.log)
		}
	}
}

// survives kills a node in the middle of its work, and sees the others finish it.
func (b *notebook) survives(topic int64, victim, other *member, count int) {
	b.t.Helper()
	b.publish(other, topic, "third", count)
	var handler *note
	for handler == nil {
		for _, n := range b.wait("third", 1) {
			if n.node(b.testCluster) == victim.name {
				handler = &n
			}
		}
	}
	victim.kill()
	before := b.wait("third", 1)
	if len(before) >= count {
		b.t.Fatal("the node had nothing left to do when it was killed: this run proves nothing")
	}
	for _, n := range b.wait("third", count)[len(before):] {
		if n.node(b.testCluster) == victim.name {
			b.t.Errorf("%q was handled on %s after its end", n.Message, victim.name)
		}
	}
	if !ended(handler.PID) {
		b.t.Errorf("a handler outlives its node: process %d", handler.PID)
	}
	b.wantVersion(other, "3")
	b.start(victim)
	b.wantVersion(victim, "3")
}

// TestKilledNodeLeavesNoProcess kills a node whose function has forked. The next start ends the child.
func TestKilledNodeLeavesNoProcess(t *testing.T) {
	code := buildNotes(t)
	for name, more := range map[string][]string{"as the machine is": nil, "without control groups": {"--function-cgroup", "/dev/null"}} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			p := start(t, dir, "127.0.0.1:0", more...)
			cli(t, p, "function", "deploy", "notes", code, "--timeout", "20s")
			var n note
			if out := cli(t, p, "function", "invoke", "notes", `{"fork": true}`); json.Unmarshal(out, &n) != nil || n.Child == 0 {
				t.Fatalf("%s", out)
			}
			p.kill()
			if ended(n.Child) {
				t.Fatal("the child ended with the node: this test proves nothing")
			}
			p = start(t, dir, "127.0.0.1:0", more...)
			for deadline := time.Now().Add(20 * time.Second); !ended(n.Child) || !ended(n.PID); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("processes %d and %d are left\n%s", n.PID, n.Child, p.log)
				}
			}
			cli(t, p, "function", "invoke", "notes", `{}`)
			if code := p.terminate(); code != 0 {
				t.Errorf("exit code %d\n%s", code, p.log)
			}
		})
	}
}
