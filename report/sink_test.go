package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain makes the test binary play the program that a task in the environment names.
func TestMain(m *testing.M) {
	switch os.Getenv("SINK_TASK") {
	case "":
		os.Exit(m.Run())
	case "copy": // to the file in SINK_FILE
		f, err := os.Create(os.Getenv("SINK_FILE"))
		if err == nil {
			_, err = io.Copy(f, os.Stdin)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("all copied")
	case "die": // after two lines
		r := bufio.NewReader(os.Stdin)
		for range 2 {
			_, _ = r.ReadString('\n')
		}
		fmt.Println("out of order")
		os.Exit(3)
	case "hang": // without reading
		time.Sleep(time.Hour)
	}
}

// program is the command line that plays a task.
func program(t *testing.T, task string) (command []string, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "got")
	t.Setenv("SINK_TASK", task)
	t.Setenv("SINK_FILE", file)
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{path}, file
}

// A lockedBuffer collects a log from several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func appendLine(t *testing.T, dir, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "metrics.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSink checks that the program gets the configuration, the lines that are added and
// the summary, each once and in order, also a line that was half written when the sink
// heard of it.
func TestSink(t *testing.T) {
	dir := t.TempDir()
	appendLine(t, dir, `{"kind":"round","round":1}`+"\n") // a line of the run before a resume
	command, file := program(t, "copy")
	var log lockedBuffer
	s, err := startSink(command, dir, map[string]int{"rounds": 3}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.Update()
	appendLine(t, dir, `{"kind":"round","round":2}`+"\n"+`{"kind":"round",`)
	s.Update()
	if err := os.Mkdir(filepath.Join(dir, "rollouts"), 0o777); err != nil {
		t.Fatal(err)
	}
	sampled := `{"problem":"p1","sample":0,"prompt":"1+1=","prompt_text":"Q: 1+1=","response":"2","answers":["2"],"answer":"2","status":"ok","reward":1,"advantage":0.5,"ids":[5]}`
	if err := os.WriteFile(filepath.Join(dir, "rollouts", "round-00003.jsonl"), []byte(sampled+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	appendLine(t, dir, `"round":3}`+"\n")
	s.Update()
	s.Finish(map[string]int{"steps": 12}, errors.New("stopped"))
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	run, _ := json.Marshal(dir)
	want := `{"kind":"config","run":` + string(run) + `,"config":{"rounds":3}}
{"kind":"round","round":2}
{"kind":"round","round":3}
{"kind":"samples","round":3,"step":0,"columns":["problem","prompt","response","reward","answer","expected"],"rows":[["p1","Q: 1+1=","2",1,"2","2"]]}
{"kind":"summary","summary":{"steps":12},"error":"stopped"}
`
	if string(got) != want {
		t.Errorf("the program got\n%s\nwant\n%s", got, want)
	}
	if text := log.String(); !strings.Contains(text, "all copied") || strings.Contains(text, "WARN") {
		t.Errorf("log: %s", text)
	}
}

// TestSinkFails checks that a program that dies or reads nothing does not delay the run,
// and that the lost lines are counted.
func TestSinkFails(t *testing.T) {
	for task, want := range map[string][]string{
		"die":  {"out of order", "exit status 3", "lines_lost="},
		"hang": {"signal: killed", "lines_lost="},
	} {
		dir := t.TempDir()
		command, _ := program(t, task)
		var log lockedBuffer
		s, err := startSink(command, dir, nil, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		s.Patience = 100 * time.Millisecond
		line := `{"kind":"round","text":"` + strings.Repeat("x", 10_000) + `"}` + "\n"
		for range 100 { // more than a pipe holds
			appendLine(t, dir, line)
			s.Update()
		}
		s.Finish(nil, nil)
		for _, part := range want {
			if !strings.Contains(log.String(), part) {
				t.Errorf("%s: the log has no %q:\n%s", task, part, log.String())
			}
		}
		if s.countLost() == 0 {
			t.Errorf("%s: no line was lost", task)
		}
	}
}

// TestStartFails checks the errors of commands that cannot be started.
func TestStartFails(t *testing.T) {
	for _, command := range [][]string{nil, {""}, {filepath.Join(t.TempDir(), "none")}} {
		if s, err := startSink(command, t.TempDir(), nil, slog.Default()); err == nil || s != nil || !strings.HasPrefix(err.Error(), "sink: ") {
			t.Errorf("%q: %v", command, err)
		}
	}
}

// TestPage runs the sinks of docs/reports.md on the metrics of a run, without a
// network. Those whose Python package is not installed are skipped.
func TestPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "reports.md"))
	if err != nil {
		t.Fatal(err)
	}
	sinks := regexp.MustCompile("(?s)```python\n# (\\w+)_sink.py\n(.*?)```").FindAllSubmatch(page, -1)
	if len(sinks) != 3 {
		t.Fatalf("%d sinks in the page, want 3", len(sinks))
	}
	for _, found := range sinks {
		name := string(found[1])
		t.Run(name, func(t *testing.T) {
			if out, err := exec.Command("python3", "-c", "import "+name).CombinedOutput(); err != nil {
				t.Skipf("python3 has no %s: %v %.100s", name, err, out)
			}
			dir := t.TempDir()
			for key, value := range map[string]string{
				"HOME": dir, "TRACKIO_DIR": filepath.Join(dir, "trackio"),
				"WANDB_MODE": "offline", "WANDB_DIR": dir, "WANDB_SILENT": "true",
				"MLFLOW_TRACKING_URI": filepath.Join(dir, "mlruns"), "MLFLOW_ALLOW_FILE_STORE": "true",
			} {
				t.Setenv(key, value)
			}
			script := filepath.Join(dir, "sink.py")
			if err := os.WriteFile(script, found[2], 0o666); err != nil {
				t.Fatal(err)
			}
			var log lockedBuffer
			s, err := startSink([]string{"python3", script}, dir, map[string]any{"train": map[string]any{"rounds": 2}}, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			s.Patience = 2 * time.Minute
			for step := 1; step <= 3; step++ {
				appendLine(t, dir, fmt.Sprintf(`{"kind":"step","step":%d,"round":1,"grad_norm":0.5,"p/mean":1,"p/mean/pos":1,"time":"2026-01-02T03:04:05Z"}`+"\n", step))
			}
			appendLine(t, dir, `{"kind":"round","step":3,"round":1,"reward":0.25,"nothing":null}`+"\n")
			appendLine(t, dir, `{"kind":"eval","step":3,"round":1,"eval/sums/pass@1":0.5}`+"\n")
			s.Finish(map[string]any{"rounds": 1}, nil)
			if strings.Contains(log.String(), "WARN") {
				t.Error(log.String())
			}
			stored := 0
			if err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
				if err != nil || !e.Type().IsRegular() {
					return err
				}
				text, err := os.ReadFile(path)
				if path != script && filepath.Base(path) != "metrics.jsonl" && (bytes.Contains(text, []byte("grad_norm")) || strings.Contains(path, "grad_norm")) {
					stored++
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if stored == 0 {
				t.Errorf("no file holds the metrics; the program said %s", log.String())
			}
		})
	}
}
