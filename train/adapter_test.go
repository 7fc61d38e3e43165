package train

import (
	"strings"
	"testing"

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
