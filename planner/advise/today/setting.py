"""A setting that somebody trains with, and the plan that it makes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ....catalog.errors import UsageError
from ....profiles.curves.choice import USUAL_CURVES, CurveChoice
from ....profiles.passes.fused_optimizer import with_fused_optimizer
from ....profiles.passes.optimizers import with_optimizer
from ....profiles.profile import Profile
from ...cost.run_cost import samples_of, steps_of
from ...goodput.own_stops import NO_OWN_STOPS, OwnStops
from ...hardware.cluster import Site
from ...plan.errors import UnsupportedError
from ...plan.plan import Plan
from ...plan.question import Money, Question, Work
from ...plan.setup import Setup
from ...predict.kept.model_cache import ModelCache
from ...predict.predict import predict
from ...search.answer.to_plan import as_plan
from ...search.candidate import Candidate
from ...search.machines.offers import PricedInstance
from ...search.progress import Progress, untold
from ...software.checkpoint_size import checkpoint_bytes
from ...software.stack import casts_layers
from .masked_attention import with_causal_attention
from .memory_order import with_channels_last
from .own_recompute import without_own_recompute


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A machine and a setup: all of a plan that can be changed."""

    choice: PricedInstance
    nodes: int
    setup: Setup
    """`autocast` is not looked at: it follows from the rest."""
    input_is_fast: bool = False
    """Whether no step waits for its input."""
    causal_attention: bool = False
    """Whether attention that takes a mask is causal in its place."""
    fused_optimizer: bool = False
    """Whether torch's Adam runs as one kernel in place of foreach."""
    channels_last: bool = False
    """Whether convolutions run in channels-last order in place of NCHW."""
    keeps_own_recompute: bool = True
    """Whether what the file itself recomputes runs again; if not, its checkpoints are left out."""

    @property
    def site(self) -> Site:
        """Where it runs."""
        site = replace(self.choice.one_node, nodes=self.nodes)
        # Without processors whose speed is known there is no input to wait for.
        return replace(site, vcpus=None) if self.input_is_fast else site

    @property
    def global_batch(self) -> int:
        """Samples of one optimizer step."""
        setup = self.setup
        return setup.micro_batch * setup.grad_accum * setup.layout.data


class Replanner:
    """Makes plans of settings of one model, work and way of buying."""

    def __init__(
        self,
        profile: Profile,
        *,
        work: Work,
        money: Money,
        curve_choice: CurveChoice = USUAL_CURVES,
        own_stops: OwnStops = NO_OWN_STOPS,
        on_progress: Progress = untold,
    ) -> None:
        self.profile = profile
        self.own_stops = own_stops
        self.on_progress = on_progress
        self.work = work
        self.money = money
        self.curve_choice = curve_choice
        self._own = ModelCache(profile, curve_choice=curve_choice)
        self._caches: dict[tuple[str | None, bool, bool, bool, bool], ModelCache] = {
            (None, False, False, False, True): self._own
        }

    @cached_property
    def freest(self) -> Profile:
        """The model without the checkpoints of its file, where that can be told from its trace."""
        return without_own_recompute(self.profile) or self.profile

    def plan(self, setting: Setting) -> Plan:
        """Return the plan of a setting, whether it fits in memory or not.

        Raises:
            UnsupportedError: the device or this version cannot do it.
            UsageError: the file was not traced in that precision.
        """
        setup = setting.setup
        cache = self._cache(setting)
        autocast = casts_layers(setup.stack, setup.layout, setup.offload)
        setup = replace(setup, optimizer=None, autocast=autocast)
        prediction = predict(cache.profile, setting.site, setup, cache=cache)
        question = Question(work=self.work, money=self.money)
        samples = samples_of(self.work, self.profile.tokens_per_sample, setting.global_batch)
        candidate = Candidate(
            choice=setting.choice,
            one_node=replace(setting.site, nodes=1),
            base=setup,
            layout=setup.layout,
            micro_batch=setup.micro_batch,
            grad_accum=setup.grad_accum,
            recompute=setup.recompute,
            step_s=prediction.step_time_s.value,
            over_likely=1.0,  # The plan takes it from the prediction.
            global_batch=setting.global_batch,
            steps=None if samples is None else steps_of(samples, setting.global_batch),
            checkpoint_bytes=checkpoint_bytes(
                cache.profile, setup.precision, setup.frozen_precision
            ),
            variants_that_fit=1,
        )
        return as_plan(candidate, prediction, cache.profile, question)

    def try_plan(self, setting: Setting) -> Plan | None:
        """Return the plan of a setting; None where it cannot be predicted."""
        try:
            return self.plan(setting)
        except (UnsupportedError, UsageError):
            return None

    def _cache(self, setting: Setting) -> ModelCache:
        """Return what predictions share of the model as the setting changes it."""
        optimizer, fused = setting.setup.optimizer, setting.fused_optimizer
        keeps = setting.keeps_own_recompute
        key = optimizer, setting.causal_attention, fused, setting.channels_last, keeps
        if key not in self._caches:
            profile = self.profile if keeps else self.freest
            if setting.causal_attention:
                profile = with_causal_attention(profile)
            if optimizer is not None:
                profile = with_optimizer(profile, optimizer)
            if setting.channels_last:
                profile = with_channels_last(profile)
            if fused:
                profile = with_fused_optimizer(profile)
            self._caches[key] = self._own.of(profile)
        return self._caches[key]


def fits(plan: Plan) -> bool:
    """Return whether the device, and the host of what is offloaded, hold the predicted peak."""
    peak, on_host = plan.peak_memory_bytes, plan.host_memory_bytes
    return peak.value <= peak.capacity and (on_host is None or on_host.fits)
