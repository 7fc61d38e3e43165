package arithmetic

import (
	"bytes"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onering/tokenize"
)

var update = flag.Bool("update", false, "write the embedded tokenizer anew")

// The embedded tokenizer's files are what tokenize makes of Specials and Pieces.
func TestEmbeddedTokenizer(t *testing.T) {
	c := tokenize.Character{Specials: Specials, Pieces: Pieces, EOS: "<eos>", Pad: "<pad>"}
	dir := t.TempDir()
	if *update {
		dir = "model"
	}
	if err := c.Save(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := fs.ReadFile(Model(), name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from what tokenize writes: run go test -update and remake.sh", name)
		}
	}
}

func TestWorkedIsRight(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	longest := 0
	for range 20000 {
		p := Draw(r, false)
		text := p.Worked(r, 0)
		if want := boxed(p.Answer()); !strings.HasSuffix(text, ";"+want) {
			t.Fatalf("%s%s: want the end %s", p.Prompt(), text, want)
		}
		longest = max(longest, len(text)+1)
	}
	if longest != MaxResponse {
		t.Errorf("the longest worked response has %d tokens, MaxResponse says %d", longest, MaxResponse)
	}
}

func TestExamples(t *testing.T) {
	for prompt, want := range map[Problem]string{
		{129, 955, false}: `9+5+0=14;2+5+1=8;1+9+0=10;\boxed{1084}`,
		{843, 129, true}:  `3-9-0=4c;4-2-1=1;8-1-0=7;\boxed{714}`,
	} {
		if got := prompt.Worked(nil, 0); got != want {
			t.Errorf("%s: got %s, want %s", prompt.Prompt(), got, want)
		}
	}
}

func TestHeldOutShare(t *testing.T) {
	held := 0
	for a := 100; a < 1000; a++ {
		for b := 100; b < 1000; b++ {
			if (Problem{a, b, false}).HeldOut() {
				held++
			}
		}
	}
	if share := float64(held) / (900 * 900); share < 0.12 || share > 0.13 {
		t.Errorf("%.4f of the problems are held out, want an eighth", share)
	}
}

func TestSlipsShowInTheAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	wrong := 0
	for range 2000 {
		p := Draw(r, true)
		if !strings.HasSuffix(p.Worked(r, 0.1), boxed(p.Answer())) {
			wrong++
		}
	}
	// A slip in any of three steps: 1 - 0.9^3 = 27 %, a little less where two cancel.
	if wrong < 440 || wrong > 640 {
		t.Errorf("%d of 2000 worked responses with slips are wrong, want about 540", wrong)
	}
}
