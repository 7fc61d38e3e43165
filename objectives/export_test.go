package objectives

// These are the rules of advantages, and their names.
var (
	Standardized, LeaveOneOut = standardized, leaveOneOut
	AdvantageRules            = advantageRules
)
