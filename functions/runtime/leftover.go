package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Where instances have no control groups, the kernel ends the processes that a node started when that dies, but not what those forked. So each
// instance's directory says who it is, and the next host ends who still is.

const (
	groupFile = "group"
	killTries = 100
	killPause = 10 * time.Millisecond
)

// lockDirectory makes sure that this host is the only one in its directory, until its process ends: what it finds there may be killed.
func lockDirectory(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another node runs functions in %s: %w", dir, err)
	}
	return f, nil
}

// writeGroup notes the process group of an instance. Its leader's start tells it from a later group of the same number.
func writeGroup(dir string, leader int) error {
	who, err := identity(leader)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, groupFile), []byte(who), 0o600)
}

// identity names a process for good: its number, its start in ticks since the machine's, and which start of the machine that was.
func identity(pid int) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	stat, err := readStat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %s %s\n", pid, stat[statStart], bytes.TrimSpace(boot)), nil
}

// endLeft ends what the instances of a dead host left, by their directories.
func endLeft(runDir string) error {
	entries, err := os.ReadDir(runDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	left := map[string]bool{}
	for _, e := range entries {
		left[e.Name()] = true
		killGroup(filepath.Join(runDir, e.Name()))
	}
	if len(left) > 0 {
		killMarked(func(id string) bool { return left[id] })
	}
	return err
}

// killGroup kills the process group that a directory names, if its leader is still the one that it was.
func killGroup(dir string) {
	noted, err := os.ReadFile(filepath.Join(dir, groupFile))
	var leader int
	if _, scanned := fmt.Sscan(string(noted), &leader); err != nil || scanned != nil || leader <= 1 {
		return
	}
	if now, err := identity(leader); err == nil && now == string(noted) {
		syscall.Kill(-leader, syscall.SIGKILL)
	}
}

// killMarked kills the processes of instances, which have an id in their environment, until there are none: one can fork while others are killed.
func killMarked(is func(id string) bool) {
	for range killTries {
		found := false
		processes(func(pid int, dir string) {
			if id := markOf(dir); id != "" && is(id) {
				found = true
				syscall.Kill(pid, syscall.SIGKILL)
			}
		})
		if !found {
			return
		}
		time.Sleep(killPause)
	}
}

// markOf returns the id of the instance that a process belongs to, "" for none. What has ended has no environment any more.
func markOf(dir string) string {
	env, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return ""
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if id, is := bytes.CutPrefix(v, []byte(instanceMark)); is {
			return string(id)
		}
	}
	return ""
}
