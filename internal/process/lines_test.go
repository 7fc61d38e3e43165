package process

import (
	"runtime"
	"strings"
	"testing"
)

// TestDeliver: an answer reaches the question with its id, and no other question.
func TestDeliver(t *testing.T) {
	l := &Lines{Process: &Process{stderr: new(stderrLog)}, Words: Words{Unit: "group"}, waiting: map[int]chan []byte{}}
	_, answer := l.expect()
	l.expect()
	for _, tt := range []struct{ line, want string }{
		{`{"id": 1}`, ""},
		{" \n", ""},
		{`{"id": 1}`, `"{\"id\": 1}" answers group 1 a second time`},
		{`{"id": 3}`, "answers group 3, which it was not given"},
		{`{"id": 0}`, "answers group 0, which it was not given"},
		{`{}`, `has no "id"`},
		{`[]`, "is not an answer"},
	} {
		err := l.deliver([]byte(tt.line))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.line, err, tt.want)
		}
	}
	if got := string(<-answer); got != `{"id": 1}` || !l.Answered() {
		t.Errorf("the answer is %q", got)
	}
	l.abandon(2)
	if err := l.deliver([]byte(`{"id": 2}`)); err != nil {
		t.Errorf("an answer that nobody waits for: %v", err)
	}
}

// TestSecret: a program reads its secret once, and what it starts finds nothing left.
func TestSecret(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a shell of Unix")
	}
	out, err := Run(t.Context(), []string{"/bin/sh", "-c", `read -r x <&3; echo "$x"; sh -c 'cat <&3; env' | grep -c "$x"`}, nil, Limits{Seconds: 60, Output: 1 << 16, Secret: "sk-a", SecretName: "AT"})
	if out != "sk-a\n0\n" {
		t.Errorf("%q, %v", out, err)
	}
}
