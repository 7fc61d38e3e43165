package report

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestRecord compares with the first record of a file that the Python package
// tensorboard 2.21 wrote: the version event at wall time 1.5.
func TestRecord(t *testing.T) {
	const want = "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c"
	event := protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type)
	event = protowire.AppendFixed64(event, math.Float64bits(1.5))
	event = protowire.AppendTag(event, eventFileVersion, protowire.BytesType)
	event = protowire.AppendString(event, "brain.Event:2")
	if got := hex.EncodeToString(appendRecord(nil, event)); got != want {
		t.Errorf("record\n%s, want\n%s", got, want)
	}
}

// events reads the event file of a run and returns "step tag=value" for each scalar.
func events(t *testing.T, run string) (list []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(run, "tensorboard", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("event files %v, %v: want one", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for len(data) > 0 {
		n := binary.LittleEndian.Uint64(data)
		if masked(data[:8]) != binary.LittleEndian.Uint32(data[8:]) {
			t.Fatal("the checksum of a length is wrong")
		}
		event := data[12 : 12+n]
		if masked(event) != binary.LittleEndian.Uint32(data[12+n:]) {
			t.Fatal("the checksum of an event is wrong")
		}
		list = append(list, scalarsOf(t, event)...)
		data = data[16+n:]
	}
	return list
}

func scalarsOf(t *testing.T, event []byte) (list []string) {
	step, last := int64(0), 0.0
	each(t, event, func(n protowire.Number, v []byte, x uint64) {
		switch n {
		case eventWallTime:
			last = math.Float64frombits(x)
		case eventStep:
			step = int64(x)
		case eventSummary:
			each(t, v, func(_ protowire.Number, v []byte, _ uint64) {
				tag, value := "", ""
				each(t, v, func(n protowire.Number, v []byte, x uint64) {
					switch n {
					case valueTag:
						tag = string(v)
					case valueSimple:
						value = fmt.Sprint(math.Float32frombits(uint32(x)))
					case valueTensor:
						each(t, v, func(n protowire.Number, v []byte, x uint64) {
							if n == tensorString {
								value = string(v)
							}
						})
					}
				})
				list = append(list, fmt.Sprintf("%d %s=%s", step, tag, value))
			})
		}
	})
	if last <= 0 {
		t.Error("an event without a wall time")
	}
	return list
}

// each calls f for every field of a protobuf message.
func each(t *testing.T, b []byte, f func(n protowire.Number, v []byte, x uint64)) {
	t.Helper()
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		b = b[size:]
		var v []byte
		var x uint64
		switch typ {
		case protowire.BytesType:
			v, size = protowire.ConsumeBytes(b)
		case protowire.Fixed64Type:
			x, size = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			var y uint32
			y, size = protowire.ConsumeFixed32(b)
			x = uint64(y)
		default:
			x, size = protowire.ConsumeVarint(b)
		}
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		f(n, v, x)
		b = b[size:]
	}
}

func TestMirror(t *testing.T) {
	run := t.TempDir()
	metrics := filepath.Join(run, "metrics.jsonl")
	write := func(text string) {
		t.Helper()
		if err := appendFile(metrics, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	m := &mirror{run: run}
	check := func(want string) {
		t.Helper()
		if err := m.Update(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(events(t, run), ", "); got != want {
			t.Errorf("events %q, want %q", got, want)
		}
	}
	write(`{"kind":"eval","round":0,"step":0,"eval/sums/pass@1":0.25}` + "\n" + `{"kind":"step","step":1,"round":1,"loss":null,"grad_norm":0.5}` + "\n" + `{"kind":"ro`)
	check("0 eval/sums/pass@1=0.25, 1 loss/grad_norm=0.5")
	write(`und","step":1,"round":1,"grad_norm":0.5,"reward":0.75,"seconds/rollout":2}` + "\n")
	check("0 eval/sums/pass@1=0.25, 1 loss/grad_norm=0.5, 1 reward/reward=0.75, 1 time/rollout=2")
	check("0 eval/sums/pass@1=0.25, 1 loss/grad_norm=0.5, 1 reward/reward=0.75, 1 time/rollout=2")

	// A resumed run drops records, so the event file must be written again.
	if err := os.Truncate(metrics, int64(len(`{"kind":"eval","round":0,"step":0,"eval/sums/pass@1":0.25}`)+1)); err != nil {
		t.Fatal(err)
	}
	check("0 eval/sums/pass@1=0.25")
	m = &mirror{run: run} // another process
	check("0 eval/sums/pass@1=0.25")

	write("no json\n")
	if err := m.Update(); err == nil || !strings.Contains(err.Error(), "metrics.jsonl") {
		t.Errorf("a broken line: %v", err)
	}
}

// TestTags checks that the metrics of a real run are in few groups, for any names that a
// reward or an objective adds.
func TestTags(t *testing.T) {
	for _, tt := range []struct{ kind, name, want string }{
		{"step", "seconds/backward", "time/backward"}, {"step", "loss", "loss/loss"}, {"step", "loss_scale", "loss/loss_scale"},
		{"step", "p/mean/pos", "p/mean/pos"}, {"step", "ess_at_p_max", "p/ess_at_p_max"},
		{"step", "log_ratio/max/neg", "policy/log_ratio/max/neg"}, {"step", "clipped", "policy/clipped"},
		{"step", "mine/kappa", "mine/kappa"}, {"step", "kappa", "step/kappa"},
		{"step", "grad_share/top10", "grad_share/top10"},
		{"round", "reward_std", "reward/reward_std"}, {"round", "reward/math/mean", "reward/math/mean"},
		{"round", "reward_log/words/mean", "reward/reward_log/words/mean"},
		{"round", "response_length/max", "length/response_length/max"},
		{"round", "seconds/rollout", "time/rollout"}, {"round", "verifier/errors", "verifier/errors"},
		{"eval", "eval/sums/pass@1", "eval/sums/pass@1"}, {"eval", "loss", "eval/loss"},
	} {
		if got := tagOf(tt.kind, tt.name); got != tt.want {
			t.Errorf("%s %s: tag %q, want %q", tt.kind, tt.name, got, tt.want)
		}
	}
}

// TestSamples checks that the first responses to four problems are texts in which no
// Markdown and no markup of a response counts.
func TestSamples(t *testing.T) {
	run := t.TempDir()
	if err := os.Mkdir(filepath.Join(run, "rollouts"), 0o777); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range 12 {
		fmt.Fprintf(&b, `{"problem":"q%d","sample":%d,"prompt":"1+1","response":"# 2\r\n\r\n<script>\n`+"```"+`","answers":["2"],"answer":"2","reward":1,"right":true,"advantage":0.5}`+"\n", i/2, i%2)
	}
	for name, text := range map[string]string{
		"rollouts/round-00003.jsonl": b.String(),
		"metrics.jsonl":              `{"kind":"round","step":7,"round":3,"reward":1}` + "\n" + `{"kind":"round","step":9,"round":4,"reward":1}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(run, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&mirror{run: run}).Update(); err != nil {
		t.Fatal(err)
	}
	list := events(t, run)
	if len(list) != 6 || list[0] != "7 reward/reward=1" || list[5] != "9 reward/reward=1" {
		t.Fatalf("events %q", list)
	}
	want := "7 samples/2=    round 3, problem q1\n    reward 1, right, advantage 0.5\n    answer 2, expected 2\n\n**Prompt**\n\n    1+1\n\n**Response**\n\n    # 2\n    \n    <script>\n    ```\n\n"
	if list[2] != want {
		t.Errorf("sample %q, want %q", list[2], want)
	}
}

// TestMirrorWallTime checks the wall times of records with and without a time.
func TestMirrorWallTime(t *testing.T) {
	run := t.TempDir()
	begun := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	text := `{"kind":"step","step":1,"a":1,"time":"2026-01-02T04:00:00.500Z"}
{"kind":"round","step":1,"seconds/rollout":60,"time":"2026-01-02T04:00:01.000Z"}
{"kind":"step","step":2,"a":2}
{"kind":"round","step":2,"seconds/rollout":60}
`
	for name, data := range map[string]string{"run.toml": "", "metrics.jsonl": text} {
		if err := os.WriteFile(filepath.Join(run, name), []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(run, "run.toml"), begun, begun); err != nil {
		t.Fatal(err)
	}
	m := &mirror{run: run}
	if err := m.Update(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(m.path)
	if err != nil {
		t.Fatal(err)
	}
	var walls []float64
	for len(data) > 0 {
		n := binary.LittleEndian.Uint64(data)
		each(t, data[12:12+n], func(f protowire.Number, _ []byte, x uint64) {
			if f == eventWallTime {
				walls = append(walls, math.Float64frombits(x)-float64(begun.Unix()))
			}
		})
		data = data[16+n:]
	}
	if got, want := fmt.Sprint(walls), "[0 3600.5 3601 3601 3661]"; got != want {
		t.Errorf("seconds since the beginning %s, want %s", got, want)
	}
}
