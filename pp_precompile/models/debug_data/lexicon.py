"""The words that the debug corpus is made of; no sentences, those are in ``grammar``."""

PEOPLE = tuple(
    """archivist baker beekeeper boatman bookbinder brewer bricklayer carpenter cartographer clerk
    cobbler conductor cook diver doctor driver electrician engineer farmer ferryman fisher florist
    forester gardener glassblower guard harvester inspector joiner keeper librarian locksmith
    machinist mason mechanic messenger midwife miller miner musician nurse operator painter pilot
    plumber porter potter printer sailor scholar shepherd singer smith surveyor tailor teacher
    trader watchmaker weaver welder""".split()
)

THINGS = tuple(
    """anchor apple arrow axle bag barrel basin basket bell bench blanket board boat bolt book
    bottle bowl box bracket bridge broom brush bucket button candle carpet cart chain chair chart
    clock cloth coat coil coin compass copper cord crate cup desk dial door drawer drum engine fan
    fence file filter flag flask frame funnel gate gear glass glove hammer handle hinge hook jar
    kettle key knife ladder lamp lantern lens letter lever lid lock loom magnet map mast mirror
    motor nail needle net notebook oar oven paddle pail panel pen pipe plank plate plough pulley
    pump rail ribbon ring rope ruler saddle sail saw scale screw shelf shovel sieve spade spindle
    spool spring stamp stool stove string switch table tank thread tile timber torch tray trunk
    tube valve vase wagon wheel whistle window wire wrench""".split()
)

PLACES = tuple(
    """attic barn bay beach bridge canal cellar chapel cliff courtyard dock depot ditch factory farm
    field forest fort foundry garden garret glade granary harbour hill island kiln kitchen lake
    landing library lighthouse market marsh meadow mill mine mountain museum observatory orchard
    pasture path pier plain plaza pond quarry reservoir ridge river road school shed shore square
    stable station street terrace tower tunnel valley village warehouse well wharf
    workshop yard""".split()
)

ADJECTIVES = tuple(
    """amber ancient bent blue brass bright broad broken brown careful clean cold common crooked
    curious dark deep dry dusty early empty even faded fast fine flat fresh gentle green grey heavy
    hollow honest iron large late light little long loose loud narrow neat new noisy old orange
    painted pale patient plain polished quiet red rough round rusty sharp shiny short silent silver
    simple slow small smooth soft solid square steady stiff straight strong sturdy tall thick thin
    tired warm weathered wet white wide wooden yellow young""".split()
)

# Base form, past form.
ACTIONS = tuple(
    tuple(pair.split("/"))
    for pair in """borrow/borrowed bring/brought build/built carry/carried catch/caught
    check/checked choose/chose clean/cleaned collect/collected count/counted cover/covered
    cut/cut deliver/delivered describe/described draw/drew empty/emptied examine/examined
    fetch/fetched fill/filled find/found fix/fixed fold/folded gather/gathered guard/guarded
    hang/hung hide/hid hold/held lift/lifted load/loaded lose/lost lower/lowered mark/marked
    measure/measured mend/mended move/moved notice/noticed open/opened order/ordered pack/packed
    paint/painted polish/polished pull/pulled push/pushed record/recorded remember/remembered
    remove/removed repair/repaired replace/replaced return/returned roll/rolled save/saved
    sell/sold send/sent sharpen/sharpened shut/shut sketch/sketched sort/sorted store/stored
    test/tested tie/tied trade/traded trim/trimmed turn/turned unload/unloaded wash/washed
    watch/watched weigh/weighed wrap/wrapped""".split()
)

ADVERBS = tuple(
    """again alone already always badly calmly carefully clearly early easily eagerly evenly
    finally gently gladly hardly kindly later lightly loudly merrily nearly neatly never often
    once patiently politely promptly quickly quietly rarely safely seldom silently slowly smoothly
    sometimes soon steadily suddenly together twice usually warmly wisely""".split()
)

WEATHER = tuple(
    """breeze cloud dew drizzle fog frost gale hail haze ice lightning mist rain sleet snow storm
    sunshine thaw thunder wind""".split()
)

MATERIALS = tuple(
    """brass bronze canvas cedar chalk clay coal copper cork cotton flour glass gravel honey iron
    leather lime linen maple oak oats paper pine resin rye salt sand silk slate steel straw tar tin
    wax wheat willow wool zinc""".split()
)

UNITS = ("bags", "barrels", "boxes", "bundles", "crates", "jars", "loads", "rolls", "sacks", "tons")

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

NUMBERS = (
    *"zero one two three four five six seven eight nine ten eleven twelve".split(),
    *"thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split(),
)

REASONS = (
    "the night had been cold",
    "the road was closed",
    "nobody else had asked",
    "the light was still good",
    "the market opened at noon",
    "the water was too high",
    "the old one had worn out",
    "there was time enough",
    "the numbers did not agree",
    "the list was not finished",
    "winter was near",
    "the first attempt had failed",
    "it belonged to somebody else",
    "the price had fallen",
    "rain was expected",
    "the tools were at hand",
)
