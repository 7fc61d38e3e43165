package settings

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type shared struct {
	Rate  float64 `toml:"rate" flag:"lr" range:"(0,)" help:"how fast"`
	Share float64 `toml:"share" range:"[0,1)" note:"0 turns it off" help:"how much"`
}

type example struct {
	Name string `choice:"one two" help:"which"`
	shared
	Exact   bool `toml:"-" flag:"exact" help:"no rounding"`
	ClipLow int  `range:"[2,5]"`
	EpsESS  *float64
	Words   []string `toml:"words,omitempty"`
	Slots   int      `range:"[1,65536]" note:"more need more memory"`
	Skipped map[string]int
	private int //lint:ignore U1000 a field that is not a setting
}

func good() example { return example{Name: "one", shared: shared{Rate: 1}, ClipLow: 2, Slots: 1} }

// Embedded structs count as their fields do, in order; keys and flags follow
// from names unless tags say otherwise.
func TestFields(t *testing.T) {
	x := good()
	var keys, flags []string
	for _, f := range Fields(&x) {
		keys, flags = append(keys, f.Key), append(flags, f.Flag)
	}
	if want := []string{"name", "rate", "share", "", "clip_low", "eps_ess", "words", "slots"}; !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
	if want := []string{"name", "lr", "share", "exact", "clip-low", "eps-ess", "words", "slots"}; !slices.Equal(flags, want) {
		t.Errorf("flags %q, want %q", flags, want)
	}
	Fields(&x)[1].Value.SetFloat(7)
	if x.Rate != 7 {
		t.Error("a field is a copy")
	}
	for _, none := range []any{nil, (*example)(nil), example{}, new(int)} {
		if f := Fields(none); f != nil {
			t.Errorf("%T has fields %v", none, f)
		}
	}
	if help := Fields(&x)[0].Help(); help != "which: one, two" {
		t.Errorf("help %q", help)
	}
	if help := Fields(&x)[2].Help(); help != "how much; 0 turns it off" {
		t.Errorf("help %q", help)
	}
}

// Each impossible value is reported, with its key.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		change func(*example)
		want   string // part of the error; "" for none
	}{
		{func(*example) {}, ""},
		{func(x *example) { x.Rate = math.SmallestNonzeroFloat64 }, ""},
		{func(x *example) { x.Rate = 0 }, "rate = 0: must be a finite number above 0"},
		{func(x *example) { x.Rate = math.NaN() }, "rate = NaN: must be a finite number above 0"},
		{func(x *example) { x.Rate = math.Inf(1) }, "rate = +Inf: must be a finite number above 0"},
		{func(x *example) { x.Share = math.Nextafter(1, 0) }, ""},
		{func(x *example) { x.Share = 1 }, "share = 1: must be in [0, 1); 0 turns it off"},
		{func(x *example) { x.Share = math.Nextafter(0, -1) }, "share = -5e-324: must be in [0, 1); 0 turns it off"},
		{func(x *example) { x.ClipLow = 5 }, ""},
		{func(x *example) { x.ClipLow = 6 }, "clip_low = 6: must be in [2, 5]"},
		{func(x *example) { x.Slots = 65536 }, ""},
		{func(x *example) { x.Slots = 0 }, "slots = 0: must be at least 1; more need more memory"},
		{func(x *example) { x.Slots = 65537 }, "slots = 65537: must be at most 65536; more need more memory"},
		{func(x *example) { x.Slots = math.MaxInt }, "slots = 9223372036854775807: must be at most 65536; more need more memory"},
		{func(x *example) { x.Name = "three" }, `name = "three": must be one of one, two`},
		{func(x *example) { x.Name, x.ClipLow = "", 1 }, "name = \"\": must be one of one, two\nclip_low = 1: must be in [2, 5]"},
	} {
		x := good()
		tt.change(&x)
		err := Check(&x)
		if err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
			t.Errorf("error %v, want %q", err, tt.want)
		}
		var bad *Error
		if err != nil && !errors.As(err, &bad) {
			t.Errorf("%v is no *Error", err)
		}
	}
}

// A number is inside a range if and only if it is between its ends, which count
// where the bracket is square.
func TestRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64().Draw(t, "x")
		for tag, want := range map[string]bool{
			"(0,)": x > 0 && x <= math.MaxFloat64, "[0,)": x >= 0 && x <= math.MaxFloat64,
			"(0,1]": x > 0 && x <= 1, "[0,1)": x >= 0 && x < 1, "[-2.5,1e3]": x >= -2.5 && x <= 1000,
		} {
			if got := parseRange(tag).contains(x); got != want {
				t.Fatalf("%v in %s: %v", x, tag, got)
			}
		}
	})
	for _, tag := range []string{"[1]", "[a,2]", "[,2]"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("range %q is taken", tag)
				}
			}()
			parseRange(tag)
		}()
	}
}

// If two plug-ins have one name, the error comes from the registry, and proposes no name.
func TestTwoOfOneName(t *testing.T) {
	const said = `"mine" is registered twice`
	Register("twin", func() []string { return []string{"mine"} }, func(name string) (*int, error) {
		return new(int), errors.New(said)
	})
	p := plug{kind: kinds["twin"], what: "twin"}
	if err := p.install("mine"); err == nil || err.Error() != said {
		t.Errorf("error %v, want %s", err, said)
	}
	if err := p.install("mina"); err == nil || err.Error() != `unknown twin "mina"; did you mean "mine"? (there are mine)` {
		t.Errorf("error %v", err)
	}
}
