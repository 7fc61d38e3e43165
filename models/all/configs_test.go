package all_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onering/models"
	"onering/models/decoder"
)

// A configLine is a line of testdata/configs.jsonl: what transformers makes of the
// config.json of a family with changes, and of a generation_config.json.
type configLine struct {
	Family     string
	Set        map[string]json.RawMessage
	Absent     []string
	Generation json.RawMessage
	Error      string       // of transformers
	Model      *configModel // nil if there is an error
}

type configModel struct {
	Window      bool // some layers have a sliding window
	Params      string
	Tensors     int
	Eps         float64
	Tied        bool
	Positions   int
	Frequencies []float64
	Scaling     float64 `json:"attention_scaling"`
	Unturned    []bool
	Activation  string
	EOS         []int32
}

// TestConfigs compares our reading of config.json with transformers': either the model is
// the same, or the error names a key of the line.
func TestConfigs(t *testing.T) {
	file, err := os.Open(filepath.Join("..", "testdata", "configs.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	var bases map[string]map[string]json.RawMessage
	if lines.Scan(); json.Unmarshal(lines.Bytes(), &bases) != nil {
		t.Fatal("the first line is not the config.json of each family")
	}
	same := map[string]int{}
	for lines.Scan() {
		var line configLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		config := maps.Clone(bases[line.Family])
		maps.Copy(config, line.Set)
		for _, key := range line.Absent {
			delete(config, key)
		}
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		m, err := models.ParseConfig(text, line.Generation)
		if problem := line.judge(m, err); problem != "" {
			t.Errorf("%s with %s without %q, generation_config %s: %s", line.Family, line.Set, line.Absent, line.Generation, problem)
		} else if err == nil && line.Model != nil {
			same[line.Family]++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for family := range bases {
		if same[family] < 80 {
			t.Errorf("only %d models of %s are as in transformers", same[family], family)
		}
	}
}

// judge says what is wrong with our reading of the line.
func (line *configLine) judge(m models.Model, err error) string {
	about := append(slices.Sorted(maps.Keys(line.Set)), line.Absent...)
	named := slices.ContainsFunc(about, func(key string) bool { return strings.Contains(fmt.Sprint(err), key) })
	switch {
	case err != nil && !named:
		return "the error does not name the key: " + err.Error()
	case err != nil:
		return ""
	case line.Model == nil && line.takenAnyway(m):
		return ""
	case line.Model == nil:
		return "transformers refuses it: " + line.Error
	}
	return line.Model.differs(m, line.Generation != nil)
}

// takenAnyway says whether the line is one that transformers refuses and this package
// accepts on purpose: null means the same as a missing member, architectures names the
// family as well as model_type, no graph reads the token for padding, and heads with a
// stated width need not divide the model's width.
func (line *configLine) takenAnyway(m models.Model) bool {
	for _, value := range line.Set {
		if string(value) == "null" {
			return true
		}
	}
	return slices.Contains(line.Absent, "model_type") || slices.Contains(line.Absent, "pad_token_id") || strings.Contains(line.Error, "validate_architecture") && m.Hidden%m.Heads != 0
}

// differs says which values of m differ from the line's.
func (want *configModel) differs(m models.Model, generation bool) string {
	a, err := m.Architecture(models.Compute{})
	if err != nil {
		return err.Error()
	}
	shape, g := m.Design.(decoder.Shape), a.Geometry()
	unturned, angles := make([]bool, m.Layers), g.Kinds[0]
	for i := range unturned {
		unturned[i] = !g.Kinds[g.Kind(i)].Turns()
	}
	params, tensors := listing(m)
	switch {
	case want.Window:
		return "layers have sliding windows"
	case params != want.Params:
		return fmt.Sprintf("the names or shapes of %d tensors differ, of %d in transformers; %d key/value heads of width %d", tensors, want.Tensors, m.KVHeads, m.HeadDim)
	case shape.RMSEps != want.Eps || shape.Tied != want.Tied || m.MaxPositions != want.Positions:
		return fmt.Sprintf("epsilon %g, tied %v, positions %d, want %g, %v, %d", shape.RMSEps, shape.Tied, m.MaxPositions, want.Eps, want.Tied, want.Positions)
	case math.Abs(want.Scaling-float64(angles.Scale)) > 1e-7 || want.Activation != "silu":
		return fmt.Sprintf("attention is scaled by %g, the activation is %q", want.Scaling, want.Activation)
	case !slices.Equal(unturned, want.Unturned):
		return fmt.Sprintf("layers without rotary embedding %v, want %v", unturned, want.Unturned)
	// A generation_config.json without the ids has transformers never stop; this package stops at
	// the ids of config.json.
	case !slices.Equal(m.EOS, want.EOS) && !(generation && want.EOS == nil):
		return fmt.Sprintf("ends at %v, want %v", m.EOS, want.EOS)
	case len(angles.Frequencies) != len(want.Frequencies):
		return fmt.Sprintf("%d frequencies, want %d", len(angles.Frequencies), len(want.Frequencies))
	}
	for i, f := range angles.Frequencies { // transformers rounds three times to float32
		if !(math.Abs(float64(f)-want.Frequencies[i]) <= 3e-7*want.Frequencies[i]) {
			return fmt.Sprintf("frequency %d is %g, want %g", i, f, want.Frequencies[i])
		}
	}
	return ""
}

// listing returns the digest of the names and shapes of all tensors, and how many
// there are.
func listing(m models.Model) (digest string, n int) {
	layout := m.Layout()
	var lines []string
	for _, name := range layout.Names() {
		place, _ := layout.Find(name)
		size := strings.Trim(fmt.Sprint(place.Shape), "[]")
		lines = append(lines, name+" "+strings.ReplaceAll(size, " ", "x"))
	}
	slices.Sort(lines)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(lines, "\n"))))[:16], len(lines)
}
