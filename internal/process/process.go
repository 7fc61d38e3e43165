// Package process runs programs of the user's: some that are kept running and are asked in
// JSON lines, some once with limits. What they start ends with them, and they end with onering.
package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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

	"onering/internal/files"
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

	// Err says why it has ended, at EndedAt. Both are set before Ended is closed.
	Err     error
	EndedAt time.Time
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
		p.Err = p.cause
	case err == nil:
		p.Err = errEnded
	default:
		p.Err = fmt.Errorf("the process died: %w", err)
	}
	if words := p.stderr.lastWords(); words != "" && !p.asked {
		p.Err = fmt.Errorf("%w; its last words: %s", p.Err, words)
	}
	p.EndedAt = time.Now()
	close(p.Ended)
}

// errEnded is why a process ended that was not asked to, and was content.
var errEnded = errors.New("the process ended before it had answered")

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

// StopAll stops processes at the same time.
func StopAll[P interface{ Stop() }](list []P) {
	var all sync.WaitGroup
	for _, p := range list {
		all.Go(p.Stop)
	}
	all.Wait()
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

// Limits are those of a program that is run once.
type Limits struct {
	Seconds float64
	Output  int // bytes of its standard output
	// Megabytes of memory of each process, and of each file that it writes. If it is 0, the
	// program is the user's own and is trusted with memory, environment and network. Else it
	// is run in an empty folder without them, as far as the system allows; the log says what
	// it does not.
	Megabytes int
	// Environment has further variables, each NAME=VALUE, for a program that is the user's own.
	Environment []string
}

// Run runs a command with an input, and returns what it wrote to its standard output, also
// with an error, which says why it was no success.
func Run(ctx context.Context, command []string, input []byte, l Limits) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	cmd := exec.Command(command[0], command[1:]...)
	if len(l.Environment) > 0 {
		cmd.Env = append(os.Environ(), l.Environment...)
	}
	if l.Megabytes > 0 {
		dir, err := os.MkdirTemp("", "onering-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		if cmd, err = shutIn(dir, command, l); err != nil {
			return "", err
		}
	}
	var out []byte
	p, err := start(&stderrLog{name: command[0], kind: "tool", allowance: linesPerGroup}, cmd, func(p *Process, stdout io.Reader) {
		if out, _ = io.ReadAll(io.LimitReader(stdout, int64(l.Output)+1)); len(out) > l.Output {
			out = out[:l.Output]
			p.Fail(fmt.Errorf("it wrote more than %d bytes and was ended", l.Output))
			io.Copy(io.Discard, stdout)
		}
	})
	if err != nil {
		return "", err
	}
	go func() {
		p.Stdin.Write(input)
		p.Stdin.Close()
	}()
	timer := time.NewTimer(time.Duration(l.Seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-p.Ended:
	case <-ctx.Done():
		p.Fail(ctx.Err())
	case <-timer.C:
		p.Fail(fmt.Errorf("it took more than %v s and was ended", l.Seconds))
	}
	<-p.Ended
	text := strings.ToValidUTF8(string(out), "\ufffd")
	if errors.Is(p.Err, errEnded) {
		return text, nil
	}
	return text, p.Err
}

// shutIn returns the command with its limits, to be run in a folder. Of the environment it
// gets where programs are.
func shutIn(dir string, command []string, l Limits) (*exec.Cmd, error) {
	path, err := exec.LookPath(command[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot be started: %w", err)
	}
	cmd, missing := limited(append([]string{path}, command[1:]...), l)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LANG=C.UTF-8"}
	if missing != nil {
		unlimited.Do(func() {
			slog.Warn("this system does not limit all that programs of the policy could do: give onering a user or a container of its own", "not limited", missing)
		})
	}
	return cmd, nil
}

// unlimited warns once.
var unlimited sync.Once

// MaxAnswer is the most bytes that an answer may have.
const MaxAnswer = 16 << 20

// Lines are asked by lines of their standard input, each a JSON object with an "id", and
// answer by lines of their standard output with the same, in any order.
type Lines struct {
	*Process
	Words

	mu      sync.Mutex
	input   chan []byte // lines for its standard input
	last    int         // id of the newest question
	waiting map[int]chan []byte
	answers int
}

// Words are those of messages about a program: what it is, such as "grader", and what its
// questions are about, such as "group". Remedy says which settings give it more time.
type Words struct{ Kind, Unit, Remedy string }

// StartLines starts a program.
func StartLines(command []string, words Words) (*Lines, error) {
	l := &Lines{Words: words, input: make(chan []byte), waiting: map[int]chan []byte{}}
	p, err := Start(words.Kind, exec.Command(command[0], command[1:]...), l.read)
	if err != nil {
		return nil, err
	}
	l.Process = p
	go l.write()
	return l, nil
}

// Ask asks a question, which encode writes for its id, and waits for the answer. A process
// that gives none within the limit, if that is not 0, is killed. If ctx ends first, nobody
// waits for the answer any more; the process goes on.
func (l *Lines) Ask(ctx context.Context, limit time.Duration, encode func(id int) []byte) (id int, text []byte, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	id, answer := l.expect()
	line := append(encode(id), '\n')
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	input := l.input
	for {
		select {
		case input <- line:
			input = nil
			continue
		case <-late:
			l.Fail(fmt.Errorf("no answer to %s %d within %v s, the process is killed; %s", l.Unit, id, limit.Seconds(), l.Remedy))
			continue
		case <-ctx.Done():
			l.abandon(id)
			return id, nil, ctx.Err()
		case text := <-answer:
			return id, text, nil
		case <-l.Ended:
		}
		select {
		case text := <-answer: // its last one
			return id, text, nil
		default:
			return id, nil, l.Err
		}
	}
}

// Answered says whether the process has answered anything.
func (l *Lines) Answered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers > 0
}

// expect makes the id of another question, and a place for the answer to it.
func (l *Lines) expect() (id int, answer <-chan []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	place := make(chan []byte, 1)
	l.waiting[l.last] = place
	l.stderr.allow(linesPerGroup)
	return l.last, place
}

// abandon says that nobody waits for an answer any more.
func (l *Lines) abandon(id int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[id] != nil {
		l.waiting[id] = make(chan []byte, 1)
	}
}

// write hands the lines to the process. An error means that it has closed its input;
// it may still answer what it has read, or the limit ends it.
func (l *Lines) write() {
	for {
		select {
		case line := <-l.input:
			if _, err := l.Stdin.Write(line); err != nil {
				slog.Debug("the "+l.Kind+" does not read", "command", l.stderr.name, "reason", err)
			}
		case <-l.Ended:
			return
		}
	}
}

// read passes on the answers until the output ends. What is no answer ends the process:
// nobody knows which question it was meant for.
func (l *Lines) read(p *Process, stdout io.Reader) {
	in := bufio.NewReaderSize(stdout, 1<<16)
	for number := 1; ; number++ {
		line, err := files.ReadLine(in, MaxAnswer)
		if err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
			return // a last line without an end is what a dying process has left
		}
		if err == bufio.ErrTooLong {
			err = fmt.Errorf("%s is longer than %d MB", Excerpt(line), MaxAnswer>>20)
		}
		if err == nil {
			err = l.deliver(bytes.Clone(line)) // others read it while the next line comes
		}
		if err != nil {
			p.Fail(fmt.Errorf("line %d of its output: %w", number, err))
			io.Copy(io.Discard, stdout)
			return
		}
	}
}

// deliver passes on a line to whom it answers.
func (l *Lines) deliver(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	var head struct {
		ID *int `json:"id"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return fmt.Errorf("%s is not an answer: %w; what is not one belongs on standard error", Excerpt(line), err)
	}
	if head.ID == nil {
		return fmt.Errorf("%s has no \"id\": an answer has that of its %s", Excerpt(line), l.Unit)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	place := l.waiting[*head.ID]
	switch {
	case place == nil && *head.ID > 0 && *head.ID <= l.last:
		return fmt.Errorf("%s answers %s %d a second time", Excerpt(line), l.Unit, *head.ID)
	case place == nil:
		return fmt.Errorf("%s answers %s %d, which it was not given", Excerpt(line), l.Unit, *head.ID)
	}
	delete(l.waiting, *head.ID)
	l.answers++
	place <- line
	return nil
}
