package runtime

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// processesMax bounds the processes and threads of an instance, as Lambda does.
	processesMax = 1024
	// A group can be removed when what was killed in it has ended, which is a matter of moments.
	removeTries = 200
	removePause = 5 * time.Millisecond
)

// cgroups makes control groups (cgroup v2) for instances: what is in one ends together, wherever it has gone, and is bounded together.
type cgroups struct {
	prefix string // of the directories of one host's groups
	memory bool   // the kernel bounds memory
	pids   bool   // the kernel bounds processes
}

// openCgroups finds out whether instances can have groups beneath root ("" = the group of this process), and ends those that an earlier host
// of the same directory left.
func openCgroups(root, dir string) (*cgroups, error) {
	if root == "" {
		own, err := ownCgroup()
		if err != nil {
			return nil, err
		}
		root = own
	}
	sum := sha256.Sum256([]byte(dir))
	c := &cgroups{prefix: filepath.Join(root, fmt.Sprintf("handfast-%x-", sum[:8]))}
	if err := c.endLeft(root); err != nil {
		return nil, err
	}
	if err := c.probe(); err != nil {
		return nil, err
	}
	c.memory, c.pids = enableController(root, "memory"), enableController(root, "pids")
	return c, nil
}

// ownCgroup is the directory of the group that this process is in.
func ownCgroup() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for mount := range strings.Lines(string(mounts)) {
		at, kind, _ := strings.Cut(mount, " - ")
		if fields := strings.Fields(at); len(fields) > 4 && strings.HasPrefix(kind, "cgroup2 ") {
			for group := range strings.Lines(string(groups)) {
				if path, unified := strings.CutPrefix(strings.TrimSpace(group), "0::"); unified {
					return filepath.Join(fields[4], path), nil
				}
			}
		}
	}
	return "", errors.New("cgroup v2 is not mounted")
}

// endLeft ends the groups of an earlier host. That a group is left is an error of that host's death, and what runs in it has nobody else.
func (c *cgroups) endLeft(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if g := (&cgroup{filepath.Join(root, e.Name())}); strings.HasPrefix(g.dir, c.prefix) {
			err = errors.Join(err, g.end())
		}
	}
	return err
}

// probe starts a program that is not there in a group: that its absence is what fails shows that all before it works. The kernel may let
// nothing begin in a group that was killed once.
func (c *cgroups) probe() error {
	g, err := c.add("probe", 0)
	if err != nil {
		return err
	}
	defer g.end()
	cmd := exec.Command(filepath.Join(g.dir, "no-program"))
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	done, err := g.take(cmd.SysProcAttr)
	if err != nil {
		return err
	}
	defer done()
	if err := cmd.Start(); err == nil {
		cmd.Wait()
		return fmt.Errorf("what starts in %s ends before it runs", g.dir)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start a process in %s: %w", g.dir, err)
	}
	return setCgroup(g.dir, "cgroup.kill", "1")
}

// enableController lets the groups beneath root have limits of a kind. The kernel refuses that where root has processes of its own.
func enableController(root, name string) bool {
	enabled, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
	if err == nil && slices.Contains(strings.Fields(string(enabled)), name) {
		return true
	}
	return setCgroup(root, "cgroup.subtree_control", "+"+name) == nil
}

// setCgroup writes to a file that the kernel made: one that is not there is no control of this group.
func setCgroup(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// cgroup is the control group of one instance.
type cgroup struct{ dir string }

// add makes a group. memory is in MiB.
func (c *cgroups) add(id string, memory int) (*cgroup, error) {
	g := &cgroup{c.prefix + id}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if c.memory {
		err = errors.Join(setCgroup(g.dir, "memory.max", strconv.Itoa(memory<<20)), setCgroup(g.dir, "memory.oom.group", "1"))
		setCgroup(g.dir, "memory.swap.max", "0") // a kernel without swap has no such file
	}
	if c.pids {
		err = errors.Join(err, setCgroup(g.dir, "pids.max", strconv.Itoa(processesMax)))
	}
	if err != nil {
		os.Remove(g.dir)
		return nil, err
	}
	return g, nil
}

// take has the next process that is started with the attributes begin in the group. done is to be called after that.
func (g *cgroup) take(a *syscall.SysProcAttr) (done func() error, err error) {
	dir, err := os.Open(g.dir)
	if err != nil {
		return nil, err
	}
	a.UseCgroupFD, a.CgroupFD = true, int(dir.Fd())
	return dir.Close, nil
}

// kill ends everything in the group.
func (g *cgroup) kill() { setCgroup(g.dir, "cgroup.kill", "1") }

// ranOut tells whether the kernel killed the group for its memory.
func (g *cgroup) ranOut() bool {
	raw, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	if err != nil {
		return false
	}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		if n, is := strings.CutPrefix(lines.Text(), "oom_kill "); is {
			return n != "0"
		}
	}
	return false
}

// end kills everything in the group and removes it.
func (g *cgroup) end() (err error) {
	g.kill()
	for range removeTries {
		if err = removeCgroup(g.dir); err == nil {
			return nil
		}
		time.Sleep(removePause)
	}
	return err
}

// removeCgroup removes a group with those that were made in it.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeCgroup(filepath.Join(dir, e.Name())))
		}
	}
	if err = errors.Join(err, os.Remove(dir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
