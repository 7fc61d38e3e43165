package cmd

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// refused CODE MESSAGE COMMAND... runs a command that must fail: with that exit
// code, with exactly that message on stderr and nothing on stdout. The files
// testdata/script/refused-*.txt are a table of these. In MESSAGE the line that
// names the help is left out, lines are joined by " | ", and $WORK is the
// script's folder.
func refused(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: refused CODE MESSAGE COMMAND...")
	}
	code, want, command := args[0], args[1], args[2:]
	exits(ts, false, append([]string{code}, command...))
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("%s: refused, but prints\n%s", strings.Join(command, " "), out)
	}
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(ts.ReadFile("stderr"), ts.Getenv("WORK"), "$WORK")) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "Run 'onering") && strings.HasSuffix(line, "--help' for usage.") {
			continue
		}
		lines = append(lines, line)
	}
	if got := strings.Join(lines, " | "); got != want {
		ts.Fatalf("%s:\n%s\nwant\n%s", strings.Join(command, " "), got, want)
	}
}

// safetensors FILE HEADER BYTES [LENGTH] writes a file of that header and that many zero
// bytes of data. LENGTH is the stated length of the header; without it the right one is
// stated.
func safetensors(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || len(args) > 4 {
		ts.Fatalf("usage: safetensors FILE HEADER BYTES [LENGTH]")
	}
	length := uint64(len(args[1]))
	data, err := strconv.Atoi(args[2])
	if err == nil && len(args) == 4 {
		length, err = strconv.ParseUint(args[3], 0, 64)
	}
	ts.Check(err)
	text := append(binary.LittleEndian.AppendUint64(nil, length), args[1]...)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), append(text, make([]byte, data)...), 0o666))
}

// truncate FILE BYTES shortens a file; if BYTES is negative, the file loses that many bytes.
func truncate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: truncate FILE BYTES")
	}
	path := ts.MkAbs(args[0])
	size, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	if size < 0 {
		info, err := os.Stat(path)
		ts.Check(err)
		size += info.Size()
	}
	ts.Check(os.Truncate(path, size))
}

// patch FILE OLD NEW replaces the first OLD by NEW, which has the same length.
func patch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 || len(args[1]) != len(args[2]) {
		ts.Fatalf("usage: patch FILE OLD NEW")
	}
	path := ts.MkAbs(args[0])
	text, err := os.ReadFile(path)
	ts.Check(err)
	if !strings.Contains(string(text), args[1]) {
		ts.Fatalf("%s does not hold %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(path, []byte(strings.Replace(string(text), args[1], args[2], 1)), 0o666))
}
