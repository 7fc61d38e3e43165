package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"onering/internal/files"
	"onering/train/metrics"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
)

// A sink is a running program that receives the figures of a run. The program reads JSON objects from its
// standard input, one on each line. The first has "kind":"config" and the resolved configuration; then come the
// lines of metrics.jsonl as they are, whose kind is step, round or eval, and after that of a round one with
// "kind":"samples" and a few of its responses; the last has "kind":"summary", and "error" if the run ended
// early. Then the input ends. A program that fails or is slow neither stops the run nor slows it.
//
// The methods return at once, except Finish: the file metrics.jsonl is the queue, so a
// slow program needs no memory and loses no line while the run continues.
type sink struct {
	metrics.Unobserved
	// Patience is how long Finish waits for a program to take a line, and then to end. It is 10 s at first.
	Patience time.Duration

	log     *slog.Logger
	path    string // path of metrics.jsonl
	offset  int64  // how many of its bytes the program has received
	program *exec.Cmd
	input   io.WriteCloser
	output  *io.PipeWriter
	wake    chan struct{} // has room for one signal
	last    chan []byte   // the summary, as the last line
	done    chan struct{} // closed when the input has been closed
	taken   atomic.Int64  // number of lines that the program took
}

// startSink starts a program for the run in the folder dir and gives it the
// configuration. If there is a metrics.jsonl, the program receives only lines added from
// now on. Its standard output and error go to the log.
func startSink(command []string, dir string, config any, log *slog.Logger) (*sink, error) {
	if len(command) == 0 || command[0] == "" {
		return nil, errors.New("sink: the command is empty: name a program and its arguments")
	}
	s := &sink{
		Patience: 10 * time.Second,
		log:      log.With("sink", command[0]), path: filepath.Join(dir, "metrics.jsonl"),
		program: exec.Command(command[0], command[1:]...),
		wake:    make(chan struct{}, 1), last: make(chan []byte, 1), done: make(chan struct{}),
	}
	first, err := jsonLine(struct {
		Kind   string `json:"kind"`
		Run    string `json:"run"`
		Config any    `json:"config"`
	}{"config", dir, config})
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(s.path)
	switch {
	case err == nil:
		s.offset = info.Size()
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("sink: %w", err)
	}
	s.program.WaitDelay = s.Patience // bounds the wait for processes that the program left behind
	detach(s.program)
	if s.input, err = s.program.StdinPipe(); err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	var said *io.PipeReader
	said, s.output = io.Pipe()
	s.program.Stdout, s.program.Stderr = s.output, s.output
	if err := s.program.Start(); err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	go s.listen(said)
	go s.serve(first)
	return s, nil
}

// Begin implements metrics.Observer.
func (s *sink) Begin(string, string, int) { s.Update() }

// Advance implements metrics.Observer.
func (s *sink) Advance(int) { s.Update() }

// Record implements metrics.Observer.
func (s *sink) Record(metrics.Record) { s.Update() }

// Update gives the program the new lines of metrics.jsonl.
func (s *sink) Update() {
	select {
	case s.wake <- struct{}{}:
	default: // a signal is waiting already
	}
}

// Finish gives the program the rest of the lines and the summary, and waits until it has
// ended. failure is why the run ended early, nil if it did not. Finish logs how many
// lines were lost if the program ended early or takes no more.
func (s *sink) Finish(summary any, failure error) {
	end := struct {
		Kind    string `json:"kind"`
		Summary any    `json:"summary"`
		Error   string `json:"error,omitempty"`
	}{Kind: "summary", Summary: summary}
	if failure != nil {
		end.Error = failure.Error()
	}
	last, err := jsonLine(end)
	if err != nil {
		s.log.Warn("the program gets no summary", "error", err)
	}
	s.last <- last // serve writes it after the lines of metrics.jsonl, and closes the input
	s.waitTaken()  // until then; a program that takes no line for s.Patience is killed
	ended := make(chan error, 1)
	go func() { ended <- s.program.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(s.Patience):
		_ = s.program.Process.Kill()
		<-ended
		err = fmt.Errorf("it did not end within %v after its input", s.Patience)
	}
	s.output.Close()
	lost := s.countLost()
	if err != nil || lost > 0 {
		s.log.Warn("the program for the metrics failed; metrics.jsonl has all of them", "error", err, "lines_lost", lost)
	}
}

// waitTaken waits until the input is closed, unless the program stops taking lines.
func (s *sink) waitTaken() {
	tick := time.NewTicker(s.Patience)
	defer tick.Stop()
	for before := s.taken.Load(); ; before = s.taken.Load() {
		select {
		case <-s.done:
			return
		case <-tick.C:
			if s.taken.Load() == before {
				_ = s.program.Process.Kill() // killing the program ends the write that hangs
				<-s.done
				return
			}
		}
	}
}

// serve gives the program its lines until the last one, or until it takes no more.
func (s *sink) serve(first []byte) {
	defer close(s.done)
	defer s.input.Close()
	err := s.write(first)
	for err == nil {
		select {
		case <-s.wake:
			err = s.copyLines()
		case last := <-s.last:
			if err = s.copyLines(); err == nil {
				err = s.write(last)
			}
			return
		}
	}
	s.log.Warn("the program for the metrics takes no more; the run continues, and metrics.jsonl has all of them", "error", err)
}

// write gives the program a line and counts it.
func (s *sink) write(line []byte) error {
	_, err := s.input.Write(line)
	if err == nil {
		s.taken.Add(1)
	}
	return err
}

// copyLines gives the program the complete lines that were added to metrics.jsonl.
func (s *sink) copyLines() error {
	return eachAddedLine(s.path, s.offset, func(line []byte) error {
		err := s.write(line)
		if err != nil {
			return err
		}
		s.offset += int64(len(line))
		table, err := samplesOf(filepath.Dir(s.path), line)
		if err != nil {
			s.log.Warn("the program gets no responses of a round", "error", err)
		} else if table != nil {
			return s.write(table)
		}
		return nil
	})
}

// countLost returns the number of lines that the program did not receive.
func (s *sink) countLost() int {
	n := 0
	if err := eachAddedLine(s.path, s.offset, func([]byte) error { n++; return nil }); err != nil {
		s.log.Warn("the metrics cannot be read", "error", err)
	}
	return n
}

// eachAddedLine calls do with each complete line of a file after the offset. The run may still be
// writing the last line; a later call reads it. A missing file has no lines yet.
func eachAddedLine(path string, offset int64, do func(line []byte) error) error {
	f, err := files.OpenIn(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = do(line)
		}
		if err != nil {
			return err
		}
	}
}

// longestLine is how many bytes of a line of the program's output are logged.
const longestLine = 1000

// listen logs the program's output.
func (s *sink) listen(r *io.PipeReader) {
	lines := bufio.NewReaderSize(r, longestLine)
	for {
		text, more, err := lines.ReadLine()
		if err != nil {
			return
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			s.log.Info(string(text))
		}
		for more && err == nil { // skip the rest of a long line
			_, more, err = lines.ReadLine()
		}
	}
}

// jsonLine returns x as one line of JSON.
func jsonLine(x any) ([]byte, error) {
	text, err := json.Marshal(x)
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	return append(text, '\n'), nil
}
