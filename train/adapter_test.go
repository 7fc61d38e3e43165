package train

import (
	"strings"
	"testing"

	"onering/models"
	"onering/models/lora"
	"onering/train/rundir"
)

// TestBase: an adapter's checkpoint goes with the weights that it was trained beside,
// and with no others.
func TestBase(t *testing.T) {
	whole, adapted := &Policy{}, &Policy{Adapter: &lora.Adapter{}, base: &rundir.Base{Model: "m", Digest: "crc32c:1"}}
	for _, tt := range []struct {
		policy *Policy
		base   *rundir.Base
		want   string
	}{
		{whole, nil, ""},
		{adapted, &rundir.Base{Model: "elsewhere", Digest: "crc32c:1"}, ""},
		{adapted, &rundir.Base{Model: "m", Digest: "crc32c:2"}, "put the model back"},
		{adapted, nil, "holds a whole model"},
		{whole, &rundir.Base{Model: "m", Digest: "crc32c:1"}, "holds an adapter of m"},
	} {
		err := tt.policy.CheckBase(tt.base, "dir")
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("base %v: error %v, want %q", tt.base, err, tt.want)
		}
	}
}

// TestEstimateAdapter: beside an adapter there are gradients and moments of its
// parameters alone, and a base in 16 bits takes half of what its layers take.
func TestEstimateAdapter(t *testing.T) {
	model, err := models.ParseConfig([]byte(`{"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64, "tie_word_embeddings": true}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := Default()
	c.Runtime.Device = "cpu"
	c.LoRA.On, c.LoRA.Rank = true, 4
	wide, err := EstimateMemory(c, model)
	if err != nil {
		t.Fatal(err)
	}
	c.LoRA.BaseDType = "bfloat16"
	narrow, err := EstimateMemory(c, model)
	if err != nil {
		t.Fatal(err)
	}
	layout := model.Layout()
	first, _ := layout.Find("model.layers.0.input_layernorm.weight")
	after, _ := layout.Find("model.norm.weight")
	layers := int64(after.Offset - first.Offset)
	// A and B of q, k, v, o, gate, up and down.
	parameters := int64(2 * 4 * ((64 + 64) + 2*(64+32) + (64 + 64) + 2*(64+192) + (192 + 64)))
	if wide.Gradients != 4*parameters || wide.Moments != 8*parameters || wide.Weights != 4*(int64(layout.Size)+parameters) || wide.Halves != 0 {
		t.Errorf("the adapter has %d parameters, the estimate is %+v", parameters, wide)
	}
	if narrow.Halves != 2*layers || narrow.Weights != wide.Weights-4*layers || narrow.Peak != wide.Peak-2*layers+4*layers/2 {
		t.Errorf("the layers have %d elements; peak %d, with 16 bits %+v", layers, wide.Peak, narrow)
	}
}
