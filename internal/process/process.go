// Package process runs programs of the user: some keep running and are asked in JSON lines, some run once with
// limits. Processes that these programs start end with them, and they end with onering.
package process

import (
	"bufio"
	"bytes"
	"context"
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
	"onering/internal/strict"
)

// A Process is a running program. Separate goroutines read and write its pipes, so that a
// program that does not read, or writes too much, blocks only itself.
type Process struct {
	Stdin *os.File      // its standard input
	Ended chan struct{} // closed when the process and its children have ended

	mu       sync.Mutex
	cause    error  // why the process has to end, nil while it works
	stopping bool   // Stop asked the process to end
	kill     func() // ends the process and its children by force
	stderr   *stderrLog

	// Err says why the process ended, and EndedAt when. Both are set before Ended is closed.
	Err     error
	EndedAt time.Time
}

// How long a process may take to end, and how long its pipes may take to run empty afterwards.
const (
	grace = 2 * time.Second
	drain = 500 * time.Millisecond
)

// Start starts a command. read reads its standard output to the end, and its standard
// error goes to the log. kind is the word for the program in messages, such as "grader".
// The output of Python programs is not buffered, unless the environment says otherwise.
func Start(kind string, cmd *exec.Cmd, read func(p *Process, stdout io.Reader)) (*Process, error) {
	return start(&stderrLog{name: cmd.Args[0], kind: kind, allowance: firstLines}, cmd, read)
}

// start starts the command with a log of its standard error; see Start.
func start(log *stderrLog, cmd *exec.Cmd, read func(p *Process, stdout io.Reader)) (*Process, error) {
	stdinRead, stdin, err1 := os.Pipe()
	stdout, stdoutWrite, err2 := os.Pipe()
	stderr, stderrWrite, err3 := os.Pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdinRead, stdoutWrite, stderrWrite
	mark := fmt.Sprintf("ONERING_PROCESS_%016x=1", rand.Uint64()) // marks the process and all its children
	cmd.Env = append([]string{"PYTHONUNBUFFERED=1", mark}, cmd.Environ()...)
	separate(cmd) // only onering handles Ctrl-C, and ends the process with its children
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

// supervise starts the process, sends the result of that to started, and waits for the end of the process, when it
// sets Err and closes Ended. Some systems tie the life of a child to the thread that started it (see separate), so
// this goroutine stays on its thread until then.
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
	p.kill() // end the children of the program
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
	if words := p.stderr.lastWords(); words != "" && !p.stopping {
		p.Err = fmt.Errorf("%w; its last words: %s", p.Err, words)
	}
	p.EndedAt = time.Now()
	close(p.Ended)
}

// errEnded is the error of a process that ended by itself with success.
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

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.Ended:
		return false
	default:
		return true
	}
}

// Stop ends the process by closing its input, or by force if it has not ended within two seconds.
func (p *Process) Stop() {
	p.mu.Lock()
	if p.cause == nil {
		p.cause, p.stopping = fmt.Errorf("the %s is closed", p.stderr.kind), true
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

// StopAll stops several processes at the same time.
func StopAll[P interface{ Stop() }](list []P) {
	var all sync.WaitGroup
	for _, p := range list {
		all.Go(p.Stop)
	}
	all.Wait()
}

// How much of the standard error is logged: lines of limited length, a number at the
// start and a further number with each question.
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
	allowance int // number of lines that may still be logged
	dropped   int // number of lines that were not logged
	last      []string
}

// allow lets more lines be logged.
func (l *stderrLog) allow(lines int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowance = min(l.allowance+lines, mostLines)
}

// read logs the lines of from until it ends.
func (l *stderrLog) read(from io.Reader) {
	in := bufio.NewReaderSize(from, longestLine)
	for {
		part, more, err := in.ReadLine()
		if len(part) > 0 {
			l.line(Printable(string(part)))
		}
		for more && err == nil { // the rest of a line that is too long is dropped
			_, more, err = in.ReadLine()
		}
		if err != nil {
			return
		}
	}
}

// line notes a line as one of the last, and logs it if lines are allowed; the next that is allowed tells how many were not.
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

// lastWords returns the newest lines of the standard error.
func (l *stderrLog) lastWords() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, " | ")
}

// Check returns a *settings.Error of a key if a command names no program. script is an example for the message.
func Check(key string, command []string, script string) error {
	if len(command) > 0 && strings.TrimSpace(command[0]) != "" {
		return nil
	}
	return &settings.Error{Key: key, Value: command, Remedy: fmt.Sprintf(`must name a program and its arguments, such as ["python3", %q]`, script)}
}

// Find returns a *settings.Error of a key if a part of a command does not exist: the program, or the script that an
// interpreter is to run, which is the first argument that is no flag. There may be no command.
func Find(key string, command []string) error {
	if len(command) == 0 {
		return nil
	}
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

// scripts are the file extensions of programs that an interpreter runs.
var scripts = []string{".py", ".sh", ".js", ".mjs", ".ts", ".rb", ".pl", ".lua", ".R", ".jl"}

// Excerpt returns the beginning of a program's output in quotes, with unprintable characters escaped.
func Excerpt(text []byte) string {
	const most = 200
	if len(text) > most {
		return strconv.Quote(string(text[:most])) + "..."
	}
	return strconv.Quote(string(text))
}

// Printable escapes unprintable characters of a text, so that a program cannot control the terminal that shows it.
func Printable(text string) string {
	for _, r := range text {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			quoted := strconv.Quote(text)
			return quoted[1 : len(quoted)-1]
		}
	}
	return text
}

// Limits bound a program that runs once.
type Limits struct {
	Seconds float64
	Output  int // largest number of bytes of standard output
	// Megabytes bounds the memory of each process, and each file that it writes. 0 means that the program is the
	// user's own and is trusted with memory, environment and network. Otherwise it runs in an empty folder without
	// them, as far as the system allows; the log says what is not limited.
	Megabytes int
	// Environment holds further variables, each NAME=VALUE, for a program of the user.
	Environment []string
	// Secret, if not empty, is a line that a program of the user reads once from the descriptor
	// whose number the variable SecretName has. No other process finds it in its environment.
	Secret, SecretName string
}

// Run runs a command with an input and the limits l, and returns its standard output, also if there is an error,
// which says why the command failed.
func Run(ctx context.Context, command []string, input []byte, l Limits) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), l.Environment...)
	if l.Megabytes > 0 { // the program is not trusted: it gets an empty folder, and few variables
		dir, err := os.MkdirTemp("", "onering-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		if cmd, err = shutIn(dir, command, l); err != nil {
			return "", err
		}
	}
	if l.Secret != "" {
		theirs, err := whisper(l.Secret)
		if err != nil {
			return "", err
		}
		cmd.Env = append(cmd.Environ(), l.SecretName+"=3") // the descriptor of the first extra file
		if theirs == nil {                                 // the system has no such sockets: the secret is the standard input
			cmd.Env, input = append(cmd.Env, l.SecretName+"=0"), []byte(l.Secret+"\n")
		} else {
			cmd.ExtraFiles = []*os.File{theirs}
			defer theirs.Close()
		}
	}
	var out []byte
	p, err := start(&stderrLog{name: command[0], kind: "tool", allowance: linesPerGroup}, cmd, func(p *Process, stdout io.Reader) {
		if out, _ = io.ReadAll(io.LimitReader(stdout, int64(l.Output)+1)); len(out) > l.Output {
			out = out[:l.Output]
			p.Fail(fmt.Errorf("it wrote more than %d bytes and was ended", l.Output))
			io.Copy(io.Discard, stdout) // until it has ended
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

// shutIn returns the command with the limits l and the folder dir, in which it runs. It passes on only the variables
// that say where programs are, and warns once of what the system does not limit.
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

// unlimited warns once about the limits that the system lacks.
var unlimited sync.Once

// MaxAnswer is the largest number of bytes of an answer.
const MaxAnswer = 16 << 20

// A Lines is a program that reads questions as lines of its standard input, each a JSON object with
// an "id", and writes answers with the same ids as lines of its standard output, in any order.
type Lines struct {
	*Process
	Words

	mu      sync.Mutex
	input   chan []byte         // lines for the standard input
	last    int                 // id of the newest question
	waiting map[int]chan []byte // where the answers to questions go, by id
	answers int                 // how many have come
}

// Words are the words of messages about a program: its kind, such as "grader", and the
// subject of its questions, such as "group". Remedy says which settings give it more time.
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

// A tooLate error is a context.DeadlineExceeded in words of its own.
type tooLate struct{ error }

func (tooLate) Is(target error) bool { return target == context.DeadlineExceeded }

// Ask asks a question, which encode writes for its id, and waits for the answer. A process that does not answer
// within the limit is killed; a limit of 0 means none. If ctx ends first, Ask returns and the process continues: its
// answer is thrown away.
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
			input = nil // sent: from now on this case never happens
			continue
		case <-late:
			l.Fail(tooLate{fmt.Errorf("no answer to %s %d within %v s, the process is killed; %s", l.Unit, id, limit.Seconds(), l.Remedy)})
			continue // to Ended
		case <-ctx.Done():
			l.abandon(id)
			return id, nil, ctx.Err()
		case text := <-answer:
			return id, text, nil
		case <-l.Ended:
		}
		select {
		case text := <-answer: // its last answer
			return id, text, nil
		default:
			return id, nil, l.Err
		}
	}
}

// Answered says whether the process has answered a question.
func (l *Lines) Answered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers > 0
}

// expect returns the id of a new question, and the channel for its answer.
func (l *Lines) expect() (id int, answer <-chan []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	place := make(chan []byte, 1)
	l.waiting[l.last] = place
	l.stderr.allow(linesPerGroup)
	return l.last, place
}

// abandon gives up waiting for an answer. A channel without a receiver takes its place, since an answer to a question
// that is not waiting is an error.
func (l *Lines) abandon(id int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[id] != nil {
		l.waiting[id] = make(chan []byte, 1)
	}
}

// write hands the lines to the process. An error means that it has closed its input; it
// may still answer earlier questions, or the limit ends it.
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

// read passes on the answers until the output ends. A line that is not an answer ends the process: its question is
// unknown.
func (l *Lines) read(p *Process, stdout io.Reader) {
	in := bufio.NewReaderSize(stdout, 1<<16)
	for number := 1; ; number++ {
		line, err := files.ReadLine(in, MaxAnswer)
		if err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
			return // the process has ended, or closed its output; a last line without a newline is cut short
		}
		if err == bufio.ErrTooLong {
			err = fmt.Errorf("%s is longer than %d MB", Excerpt(line), MaxAnswer>>20)
		}
		if err == nil {
			err = l.deliver(bytes.Clone(line)) // the receiver reads the copy while the next line comes
		}
		if err != nil {
			p.Fail(fmt.Errorf("line %d of its output: %w", number, err))
			io.Copy(io.Discard, stdout) // until it has ended
			return
		}
	}
}

// deliver passes a line to the goroutine that waits for the answer with its id. An empty line is none; another that
// is no answer to a waiting question is an error.
func (l *Lines) deliver(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	var head struct {
		ID *int `json:"id"`
	}
	if err := strict.JSON(line, &head); err != nil {
		if bytes.Contains(line, []byte("NaN")) || bytes.Contains(line, []byte("Infinity")) {
			return fmt.Errorf("%s is not an answer: %w; NaN and Infinity are not JSON", Excerpt(line), err)
		}
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
	place <- line // it has room for one, so this does not wait
	return nil
}
