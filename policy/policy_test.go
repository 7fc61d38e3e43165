package policy

import (
	"strings"
	"testing"

	"onering/models/lora"
)

// TestBase: an adapter's checkpoint loads only with the weights that it was trained on.
func TestBase(t *testing.T) {
	whole, adapted := &Policy{}, &Policy{Adapter: &lora.Adapter{}, base: &lora.Base{Model: "m", Digest: "crc32c:1"}}
	for _, tt := range []struct {
		policy *Policy
		base   *lora.Base
		want   string
	}{
		{whole, nil, ""},
		{adapted, &lora.Base{Model: "elsewhere", Digest: "crc32c:1"}, ""},
		{adapted, &lora.Base{Model: "m", Digest: "crc32c:2"}, "put the model back"},
		{adapted, nil, "holds a whole model"},
		{whole, &lora.Base{Model: "m", Digest: "crc32c:1"}, "holds an adapter of m"},
	} {
		err := tt.policy.CheckBase(tt.base, "dir")
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("base %v: error %v, want %q", tt.base, err, tt.want)
		}
	}
}
