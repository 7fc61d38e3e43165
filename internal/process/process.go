// Package process runs programs of the user's: some that are kept running and are asked in
// JSON lines, some once with limits. What they start ends with them, and they end with onering.
package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"onering/internal/settings"
)

// A Process is a running program. Its pipes are read and written by goroutines of their
// own, so that a program that does not read, or writes more than it is asked, blocks nothing
// but itself.
type Process struct {
	Stdin *os.File      // its standard input
	Ended chan struct{} // closed when the process and what it began are gone

	mu     sync.Mutex
	cause  error // why it has to end, nil while it works
	asked  bool  // it was asked to end
	kill   func()
	stderr *stderrLog

	// Set before Ended is closed.
	err     error
	endedAt time.Time
}

// Times that a process is given to end, and its pipes to run empty after that.
const (
	grace = 2 * time.Second
	drain = 500 * time.Millisecond
)

// Start starts a command, whose standard output read reads to its end. What it writes to its
// standard error goes to the log. kind is what messages call the program, such as "grader".
// What is printed by a Python program does not wait in a buffer, unless the environment says
// otherwise.
func Start(kind string, cmd *exec.Cmd, read func(p *Process, stdout io.Reader)) (*Process, error) {
	return start(&stderrLog{name: cmd.Args[0], kind: kind, allowance: firstLines}, cmd, read)
}

// start starts the command with a log of its standard error.
func start(log *stderrLog, cmd *exec.Cmd, read func(p *Process, stdout io.Reader)) (*Process, error) {
	stdinRead, stdin, err1 := os.Pipe()
	stdout, stdoutWrite, err2 := os.Pipe()
	stderr, stderrWrite, err3 := os.Pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdinRead, stdoutWrite, stderrWrite
	mark := fmt.Sprintf("ONERING_PROCESS_%016x=1", rand.Uint64()) // of the process and all that it starts
	cmd.Env = append([]string{"PYTHONUNBUFFERED=1", mark}, cmd.Environ()...)
	separate(cmd)
	p := &Process{Stdin: stdin, Ended: make(chan struct{}), kill: sync.OnceFunc(func() { killGroup(cmd, mark) }), stderr: log}
	started := make(chan error)
	go p.supervise(cmd, started, stdout, stderr, read)
	err := <-started
	for _, theirs := range []*os.File{stdinRead, stdoutWrite, stderrWrite} {
		theirs.Close()
	}
	if err != nil {
		for _, ours := range []*os.File{stdin, stdout, stderr} {
			ours.Close()
		}
		return nil, fmt.Errorf("cannot be started: %w", err)
	}
	return p, nil
}

// supervise starts the process and waits for its end. Some systems tie the life of a
// child to the thread that started it (see separate), so this goroutine keeps its
// thread until then.
func (p *Process) supervise(cmd *exec.Cmd, started chan<- error, stdout, stderr *os.File, read func(p *Process, stdout io.Reader)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	started <- err
	if err != nil {
		return
	}
	var readers sync.WaitGroup
	readers.Go(func() { read(p, stdout) })
	readers.Go(func() { p.stderr.read(stderr) })
	err = cmd.Wait()
	p.kill() // what the program itself has started
	// A process that has left the group may hold the pipes open.
	for _, pipe := range []*os.File{stdout, stderr} {
		pipe.SetReadDeadline(time.Now().Add(drain))
	}
	readers.Wait()
	for _, pipe := range []*os.File{p.Stdin, stdout, stderr} {
		pipe.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cause != nil:
		p.err = p.cause
	case err == nil:
		p.err = errEnded
	default:
		p.err = fmt.Errorf("the process died: %w", err)
	}
	if words := p.stderr.lastWords(); words != "" && !p.asked {
		p.err = fmt.Errorf("%w; its last words: %s", p.err, words)
	}
	p.endedAt = time.Now()
	close(p.Ended)
}

// errEnded is why a process ended that was not asked to, and was content.
var errEnded = errors.New("the process ended before it had answered")

// Err says why a process that has ended did so.
func (p *Process) Err() error { return p.err }

// EndedAt says when a process that has ended did so.
func (p *Process) EndedAt() time.Time { return p.endedAt }

// Fail ends the process because of err.
func (p *Process) Fail(err error) {
	p.mu.Lock()
	if p.cause == nil {
		p.cause = err
	}
	p.mu.Unlock()
	p.kill()
}

// Stop ends the process in peace if it lets itself be: by the end of its input, or by force
// when that does not help within two seconds.
func (p *Process) Stop() {
	p.mu.Lock()
	if p.cause == nil {
		p.cause, p.asked = fmt.Errorf("the %s is closed", p.stderr.kind), true
	}
	p.mu.Unlock()
	p.Stdin.Close()
	select {
	case <-p.Ended:
	case <-time.After(grace):
		p.kill()
		<-p.Ended
	}
}

// What of the standard error is logged: lines of a length, so many at the start and
// so many more with each question.
const (
	longestLine   = 4096
	firstLines    = 200
	linesPerGroup = 20
	mostLines     = 1000
	lastLines     = 15
)

// A stderrLog logs what a process writes to its standard error.
type stderrLog struct {
	name, kind string

	mu        sync.Mutex
	allowance int // lines that may still be logged
	dropped   int // lines that were not
	last      []string
}

// allow adds to the lines that may be logged.
func (l *stderrLog) allow(lines int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowance = min(l.allowance+lines, mostLines)
}

func (l *stderrLog) read(from io.Reader) {
	in := bufio.NewReaderSize(from, longestLine)
	for {
		part, more, err := in.ReadLine()
		if len(part) > 0 {
			l.line(Printable(string(part)))
		}
		for more && err == nil { // the rest of a line that is too long
			_, more, err = in.ReadLine()
		}
		if err != nil {
			return
		}
	}
}

func (l *stderrLog) line(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last = append(l.last, text); len(l.last) > lastLines {
		l.last = slices.Delete(l.last, 0, 1)
	}
	if l.allowance == 0 {
		l.dropped++
		return
	}
	l.allowance--
	if l.dropped > 0 {
		slog.Warn("the "+l.kind+" writes more to its standard error than is logged", "command", l.name, "lines left out", l.dropped)
		l.dropped = 0
	}
	slog.Info("the "+l.kind+" says", "command", l.name, "stderr", text)
}

// lastWords returns the newest lines.
func (l *stderrLog) lastWords() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, " | ")
}

// Check says as a *settings.Error of a key that a command names no program, with a script as an
// example.
func Check(key string, command []string, script string) error {
	if len(command) > 0 && strings.TrimSpace(command[0]) != "" {
		return nil
	}
	return &settings.Error{Key: key, Value: command, Remedy: fmt.Sprintf(`must name a program and its arguments, such as ["python3", %q]`, script)}
}

// Find says as a *settings.Error of a key what of a command is not there: the program itself,
// or the script that an interpreter is to run.
func Find(key string, command []string) error {
	if _, err := exec.LookPath(command[0]); err != nil {
		return &settings.Error{Key: key, Value: command, Remedy: fmt.Sprintf("the program cannot be started: %v", err)}
	}
	for _, arg := range command[1:] {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if slices.Contains(scripts, filepath.Ext(arg)) {
			if _, err := os.Stat(arg); err != nil {
				return &settings.Error{Key: key, Value: command, Remedy: fmt.Sprintf("there is no script to run: %v; paths are from where onering is started", err)}
			}
		}
		break
	}
	return nil
}

// scripts are the extensions of programs that an interpreter runs.
var scripts = []string{".py", ".sh", ".js", ".mjs", ".ts", ".rb", ".pl", ".lua", ".R", ".jl"}

// Excerpt returns the beginning of what a program wrote, in quotes and with what
// cannot be printed escaped.
func Excerpt(text []byte) string {
	const most = 200
	if len(text) > most {
		return strconv.Quote(string(text[:most])) + "..."
	}
	return strconv.Quote(string(text))
}

// Printable returns text with what cannot be printed escaped, so that a program
// cannot steer the terminal that shows its words.
func Printable(text string) string {
	for _, r := range text {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			quoted := strconv.Quote(text)
			return quoted[1 : len(quoted)-1]
		}
	}
	return text
}
