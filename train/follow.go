package train

// A Follower follows the checkpoints of a run on the first rank, as one that sends them
// elsewhere does. Several goroutines call its methods.
type Follower interface {
	// Saved is called when a checkpoint has been written.
	Saved(checkpoint string)
	// Needs says whether a checkpoint must not be removed yet.
	Needs(checkpoint string) bool
}

// Pushing says where the checkpoints of a run are sent while it goes on.
type Pushing struct {
	PushTo      string `toml:"push_to" help:"repository on the hub, OWNER/NAME, that gets checkpoints while the run goes on, as onering push sends them; one that could not be pushed is named, and tried again with the next one and at the end"`
	PushEvery   int    `toml:"push_every" needs:"push_to!=" range:"[1,1000000]" help:"checkpoints from one push to the next; the last is always pushed"`
	PushPrivate bool   `toml:"push_private" needs:"push_to!=" help:"make the repository private if it is new, and refuse one that is public"`
}
