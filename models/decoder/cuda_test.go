package decoder_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onering/internal/graphtest"
	"onering/models"
)

// TestCUDAChanges: the flag changes only float32 Programs that have an operator without a
// kernel, ports that do, or sums in an undefined order; it changes no 16-bit Program.
func TestCUDAChanges(t *testing.T) {
	for _, b := range builds {
		if b.Provider == models.CUDA {
			continue
		}
		on := b // as it is, with the flag
		on.Provider = models.CUDA
		have, plain := allPrograms(t, on.of(small())), allPrograms(t, b.of(small()))
		for name, p := range plain {
			changes := b.Type == models.F32 && (strings.HasPrefix(name, "prefill") || strings.HasPrefix(name, "decode") ||
				strings.HasPrefix(name, "sample") || strings.HasPrefix(name, "head") && strings.Contains(name, ".forward ") ||
				strings.Contains(name, ".backward ") && !strings.HasPrefix(name, "head") || name == "norm.backward" ||
				strings.HasPrefix(name, "layer") && strings.HasSuffix(name, "blocks 3"))
			if same := bytes.Equal(p.ONNX().Encode(), have[name].ONNX().Encode()); same == changes {
				t.Errorf("%s in %v: the graph for CUDA is the same: %v", name, b, same)
			}
			if strings.HasPrefix(name, "prefill") || strings.HasPrefix(name, "decode") {
				continue
			}
			if a, b := fmt.Sprint(p.Inputs, p.Outputs, p.Alias, p.Options), fmt.Sprint(have[name].Inputs, have[name].Outputs, have[name].Alias, have[name].Options); a != b {
				t.Errorf("%s: ports %s, for CUDA %s", name, a, b)
			}
		}
	}
}

// TestCUDAPorts checks the ports that package runtime has to bind.
func TestCUDAPorts(t *testing.T) {
	ports := func(list []models.Port) string {
		var s []string
		for _, p := range list {
			if !strings.Contains(p.Name, "weight") && !strings.Contains(p.Name, "bias") {
				s = append(s, fmt.Sprintf("%s %v %v", p.Name, p.DType, p.Shape))
			}
		}
		slices.Sort(s)
		return strings.Join(s, "; ")
	}
	c := cudaBuild.of(small())
	if w := c.Geometry().CacheWidth; w != c.HeadDim {
		t.Errorf("a cache of %d for heads of %d", w, c.HeadDim)
	}
	prefill, err := c.Prefill()
	if err != nil {
		t.Fatal(err)
	}
	decode, err := c.Decode(models.Direct)
	if err != nil {
		t.Fatal(err)
	}
	const angles = "cos F32 [P 3]; "
	for _, tt := range []struct{ what, have, want string }{
		{"prefill takes", ports(prefill.Inputs), angles + "ids I64 [B T]; last I64 [B]; mask F32 [T T]; pos I64 [B*T 1]; sin F32 [P 3]"},
		{"prefill returns", ports(prefill.Outputs), "hidden F32 [B 10]; present_key.0 F32 [B 2 T 6]; present_key.1 F32 [B 2 T 6]; present_value.0 F32 [B 2 T 6]; present_value.1 F32 [B 2 T 6]"},
		{"decode takes", ports(decode.Inputs), "at I64 [B 2 3]; " + angles + "ids I64 [B 1]; past_key.0 F32 [B 2 S 6]; past_key.1 F32 [B 2 S 6]; past_value.0 F32 [B 2 S 6]; past_value.1 F32 [B 2 S 6]; places I64 [S]; pos I64 [B 1]; sin F32 [P 3]"},
		{"decode returns", ports(decode.Outputs), "hidden F32 [B 10]; present_key.0 F32 [B 2 S 6]; present_key.1 F32 [B 2 S 6]; present_value.0 F32 [B 2 S 6]; present_value.1 F32 [B 2 S 6]"},
	} {
		if tt.have != tt.want {
			t.Errorf("%s\n%s, want\n%s", tt.what, tt.have, tt.want)
		}
	}
	if len(prefill.Alias) != 0 || len(decode.Alias) != 2*c.Layers {
		t.Errorf("prefill writes onto %v, decode onto %v", prefill.Alias, decode.Alias)
	}
}

// TestCUDAPrefill: keys, values and states of prompts equal the contrib operator's, and
// places beyond a prompt's end are finite.
func TestCUDAPrefill(t *testing.T) {
	lengths := []int{5, 1, 3}
	const B, T = 3, 5
	for _, width := range []int{6, 16} {
		c := small()
		c.HeadDim = width
		r := rand.New(rand.NewPCG(41, 42))
		in := map[string]graphtest.Tensor{"mask": causal(T), "seqlens": graphtest.Int32([]int{4, 0, 2}, B), "total": graphtest.Int32([]int{T})}
		in["cos"], in["sin"] = angles(c, T)
		ids, pos, last := make([]int, B*T), make([]int, B*T), make([]int, B)
		for i := range ids {
			ids[i], pos[i] = (7*i+3)%c.Vocab, i%T
		}
		for b, n := range lengths {
			last[b] = b*T + n - 1
		}
		in["ids"], in["pos"], in["last"] = graphtest.Ints(ids, B, T), graphtest.Ints(pos, B*T, 1), graphtest.Ints(last)
		outputs := func(b build) (map[string]graphtest.Tensor, int) {
			p, err := b.of(c).Prefill()
			g := graphtest.Loaded(t, p, err)
			return run(t, g, only(p, in, r, map[string]int{"B": B, "S": T})), b.of(c).Geometry().CacheWidth
		}
		want, wide := outputs(float32Build)
		got, narrow := outputs(cudaBuild)
		if names := slices.Collect(maps.Keys(got)); len(names) != len(want) {
			t.Fatalf("outputs %v", names)
		}
		for b, n := range lengths {
			checkHidden(t, fmt.Sprintf("width %d, prompt %d", width, b), got["hidden"].Row(b), want["hidden"].Row(b))
			for name, x := range got {
				if name == "hidden" {
					continue
				}
				for at := range T {
					for g := range c.KVHeads {
						head := x.Data[((b*c.KVHeads+g)*T+at)*narrow:][:narrow]
						for i, v := range head {
							if i >= narrow/2 { // Zeros stand behind each half.
								i += (wide - narrow) / 2
							}
							w := want[name].Data[((b*c.KVHeads+g)*T+at)*wide+i]
							if at < n && !(math.Abs(v-w) <= 1e-6*(1+math.Abs(w))) || at >= n && !(math.Abs(v) < 1e6) {
								t.Fatalf("width %d: %s, prompt %d, token %d of %d: %v, the operator has %v", width, name, b, at, n, v, w)
							}
						}
					}
				}
			}
		}
	}
}
